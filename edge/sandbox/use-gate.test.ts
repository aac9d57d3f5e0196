import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ended } from './entry.ts';
import { stoppedClock } from './testing/stopped-clock.ts';
import { UseGate } from './use-gate.ts';

const never = new AbortController().signal;
const isRetryable = { code: 'version_unavailable', details: { component: 'edge', retryAfterSeconds: 1 } };

test('an open gate lets in at once, a closed one holds until it opens', async () => {
  const { clock, timers } = stoppedClock();
  const gate = new UseGate(clock, { drainMs: 100 });
  (await gate.enter(never)).release();
  gate.close('being paused');
  let isIn = false;
  const entering = gate.enter(never).then((use) => {
    isIn = true;
    return use;
  });
  await new Promise(setImmediate);
  assert.equal(isIn, false);
  gate.open();
  (await entering).release();
  assert.deepEqual([gate.size, timers.size], [0, 0]);
});

test('who waits longer than the drain deadline is told to come again', async () => {
  const { clock, advance, timers } = stoppedClock();
  const gate = new UseGate(clock, { drainMs: 100 });
  gate.close('being paused');
  const entering = assert.rejects(gate.enter(never), isRetryable);
  advance(100);
  await entering;
  assert.equal(timers.size, 0);
});

test('draining ends with the last use, or at its deadline, after which the uses are put out', async () => {
  const { clock, advance } = stoppedClock();
  const gate = new UseGate(clock, { drainMs: 100 });
  const [first, second] = [await gate.enter(never), await gate.enter(never)];
  gate.close('being paused');
  const drained = gate.drained();
  first.release();
  first.release();
  second.release();
  assert.equal(await drained, true);
  gate.open();
  const stubborn = await gate.enter(never);
  gate.close('being paused');
  const late = gate.drained();
  advance(100);
  assert.equal(await late, false);
  assert.equal(stubborn.signal.aborted, false);
  gate.evict();
  assert.equal(stubborn.signal.reason.code, 'version_unavailable');
});

test('a caller that goes away does not wait, and an ended sandbox lets nobody in', async () => {
  const { clock } = stoppedClock();
  const gate = new UseGate(clock, { drainMs: 100 });
  gate.close('being resumed');
  const leaving = new AbortController();
  const entering = assert.rejects(gate.enter(leaving.signal), { code: 'cancelled' });
  leaving.abort();
  await entering;
  const waiting = assert.rejects(gate.enter(never), { code: 'sandbox_not_found' });
  gate.end(ended('x', null));
  await waiting;
  await assert.rejects(gate.enter(never), { code: 'sandbox_not_found' });
});
