import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BuildProgress, createSingleFlight, type OnProgress } from './single-flight.ts';

/** Work that the test ends when it wants to, and that ends by itself when it is aborted. */
function controllableWork() {
  const calls: {
    resolve: (value: string) => void;
    reject: (error: Error) => void;
    onProgress: OnProgress;
  }[] = [];
  const signals: AbortSignal[] = [];
  const work = (control: { signal: AbortSignal; onProgress: OnProgress }): Promise<string> => {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    control.signal.addEventListener('abort', () => reject(new Error('aborted')));
    calls.push({ resolve, reject, onProgress: control.onProgress });
    signals.push(control.signal);
    return promise;
  };
  return { work, calls, signals };
}
const never = new AbortController().signal;

test('callers who want the same share one piece of work and all see its progress', async () => {
  const flights = createSingleFlight<string>();
  const { work, calls } = controllableWork();
  const seen: string[] = [];
  const listen = (name: string) => (progress: BuildProgress) => seen.push(`${name} ${progress.message}`);
  const first = flights.run('key', { signal: never, onProgress: listen('first') }, work);
  const second = flights.run('key', { signal: never, onProgress: listen('second') }, work);
  calls[0]!.onProgress({ task: 'root', message: 'packing' });
  calls[0]!.resolve('done');
  assert.deepEqual(await Promise.all([first, second]), ['done', 'done']);
  assert.equal(calls.length, 1);
  assert.deepEqual(seen, ['first packing', 'second packing']);
});

test('different keys are different work', async () => {
  const flights = createSingleFlight<string>();
  const { work, calls } = controllableWork();
  const both = [flights.run('a', { signal: never }, work), flights.run('b', { signal: never }, work)];
  for (const [index, call] of calls.entries()) call.resolve(String(index));
  assert.deepEqual(await Promise.all(both), ['0', '1']);
});

test('one caller leaving does not end the work of the other', async () => {
  const flights = createSingleFlight<string>();
  const { work, calls, signals } = controllableWork();
  const leaver = new AbortController();
  const first = flights.run('key', { signal: leaver.signal }, work);
  const second = flights.run('key', { signal: never }, work);
  leaver.abort(new Error('left'));
  await assert.rejects(first, /left/);
  assert.equal(signals[0]!.aborted, false);
  calls[0]!.resolve('done');
  assert.equal(await second, 'done');
});

test('the work is aborted when the last caller leaves, and a later caller starts anew', async () => {
  const flights = createSingleFlight<string>();
  const { work, calls, signals } = controllableWork();
  const leaver = new AbortController();
  const first = flights.run('key', { signal: leaver.signal }, work);
  leaver.abort(new Error('left'));
  await assert.rejects(first, /left/);
  assert.equal(signals[0]!.aborted, true);
  const later = flights.run('key', { signal: never }, work);
  assert.equal(calls.length, 2);
  calls[1]!.resolve('again');
  assert.equal(await later, 'again');
});

test('a failure reaches all callers and is not remembered', async () => {
  const flights = createSingleFlight<string>();
  const { work, calls } = controllableWork();
  const both = [flights.run('key', { signal: never }, work), flights.run('key', { signal: never }, work)];
  calls[0]!.reject(new Error('broken'));
  for (const outcome of await Promise.allSettled(both)) assert.equal(outcome.status, 'rejected');
  const later = flights.run('key', { signal: never }, work);
  calls[1]!.resolve('fine');
  assert.equal(await later, 'fine');
});

test('a caller whose signal has aborted already starts nothing', async () => {
  const { work, calls } = controllableWork();
  const flights = createSingleFlight<string>();
  await assert.rejects(flights.run('key', { signal: AbortSignal.abort(new Error('early')) }, work), /early/);
  assert.equal(calls.length, 0);
});
