import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { createBuildLane } from './lane.ts';

const never = new AbortController().signal;

/** Work that ends when told to. */
function work() {
  const end = Promise.withResolvers<void>();
  let isRunning = false;
  return {
    get isRunning() {
      return isRunning;
    },
    finish: () => end.resolve(),
    run: async () => {
      isRunning = true;
      await end.promise;
      isRunning = false;
    },
  };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test('builds run one at a time by default, first come first served', async () => {
  const lane = createBuildLane();
  const jobs = [work(), work(), work()];
  const all = Promise.all(jobs.map((job) => lane.enter(never, job.run)));
  for (const [index, job] of jobs.entries()) {
    await settle();
    assert.deepEqual(
      jobs.map(({ isRunning }) => isRunning),
      jobs.map((_, other) => other === index),
    );
    job.finish();
  }
  await all;
  assert.equal(lane.isBusy, false);
});

test('a waiter that is cancelled leaves at once and does not take a turn', async () => {
  const lane = createBuildLane();
  const first = work();
  const last = work();
  const running = lane.enter(never, first.run);
  const cancel = new AbortController();
  const cancelled = lane.enter(cancel.signal, () => assert.fail('it must not run'));
  const waiting = lane.enter(never, last.run);
  cancel.abort(new Error('gone'));
  await assert.rejects(cancelled, /gone/);
  first.finish();
  await settle();
  assert.equal(last.isRunning, true);
  last.finish();
  await Promise.all([running, waiting]);
});

test('a turn is given back when the work fails', async () => {
  const lane = createBuildLane();
  await assert.rejects(
    lane.enter(never, () => Promise.reject(new Error('broken'))),
    /broken/,
  );
  assert.equal(await lane.enter(never, async () => 'next'), 'next');
});

test('work for one key runs alone, work for another beside it', async () => {
  const lane = createBuildLane({ concurrency: 3 });
  const [a, again, b] = [work(), work(), work()];
  const all = Promise.all([
    lane.alone('a', never, a.run),
    lane.alone('a', never, again.run),
    lane.alone('b', never, b.run),
  ]);
  await settle();
  assert.deepEqual([a.isRunning, again.isRunning, b.isRunning], [true, false, true]);
  for (const job of [a, again, b]) job.finish();
  await all;
});

test('builds beyond those that may wait are refused with a time to come back', async () => {
  const lane = createBuildLane({ concurrency: 1, maxWaiting: 1 });
  const jobs = [work(), work()];
  const all = Promise.all(jobs.map((job) => lane.admit(job.run)));
  await assert.rejects(
    lane.admit(async () => {}),
    (error) => isGatewayError(error, 'node_at_capacity') && error.details.retryAfterSeconds === 30,
  );
  for (const job of jobs) job.finish();
  await all;
  await lane.admit(async () => {});
});
