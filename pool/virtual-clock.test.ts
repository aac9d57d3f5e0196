import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createVirtualClock } from './virtual-clock.ts';

test('timers run in order of time, then of scheduling, each at its own instant', async () => {
  const clock = createVirtualClock();
  const ran: string[] = [];
  const note = (name: string) => () => ran.push(`${name}@${clock.monotonic()}`);
  clock.schedule(20, note('c'));
  clock.schedule(10, note('a'));
  clock.schedule(10, note('b'));
  clock.schedule(30, note('late'));
  await clock.advance(20);
  assert.deepEqual(ran, ['a@10', 'b@10', 'c@20']);
  assert.equal(clock.pending, 1);
});

for (const settles of ['event-loop', 'promises'] as const)
  test(`what a timer starts, promises and further timers included, happens within the same advance (${settles})`, async () => {
    const clock = createVirtualClock({ settles });
    const ran: number[] = [];
    const sleep = (ms: number) => new Promise<void>((resolve) => void clock.schedule(ms, resolve));
    const work = (async () => {
      for (let step = 0; step < 3; step += 1) {
        await sleep(5);
        for (let hop = 0; hop < 50; hop += 1) await undefined;
        ran.push(clock.monotonic());
      }
    })();
    await clock.advance(15);
    await work;
    assert.deepEqual(ran, [5, 10, 15]);
  });

test('a cancelled timer never runs, and cancelling again is harmless', async () => {
  const clock = createVirtualClock();
  let runs = 0;
  const count = () => {
    runs += 1;
  };
  const cancels = Array.from({ length: 500 }, (_, index) => clock.schedule(index, count));
  for (const cancel of cancels.slice(0, 450)) cancel();
  for (const cancel of cancels.slice(0, 450)) cancel();
  assert.equal(clock.pending, 50);
  await clock.advance(1_000);
  assert.equal(runs, 50);
  assert.equal(clock.pending, 0);
});

test('a step of the wall clock moves no timer', async () => {
  const clock = createVirtualClock({ epochMs: 1_000 });
  let hasRun = false;
  clock.schedule(10, () => {
    hasRun = true;
  });
  clock.step(3_600_000);
  await clock.settle();
  assert.equal(hasRun, false);
  assert.equal(clock.now(), 3_601_000);
  await clock.advance(10);
  assert.equal(hasRun, true);
});
