import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createMovingAverage, createRateWindow, retryAfterSeconds } from './averages.ts';
import { createDemandSizing, createFloorSizing, describeSizing } from './sizing.ts';
import { createVirtualClock } from './virtual-clock.ts';

const bounds = { floor: 1, ceiling: 20 };

/** A sizing under steady demand for `seconds`. */
async function underDemand(perSecond: number, seconds: number, refillMs: number) {
  const clock = createVirtualClock();
  const sizing = createDemandSizing({ clock });
  sizing.refilled(refillMs);
  for (let count = 0; count < perSecond * seconds; count += 1) {
    await clock.advance(1000 / perSecond);
    sizing.taken();
  }
  return { clock, sizing };
}

test('steady demand asks for what is taken while one machine is made, and a spread on top', async () => {
  const { sizing } = await underDemand(10, 60, 400);
  const decision = sizing.decide(bounds);
  // 10/s × 0.4 s = 4, and √4 on top.
  assert.ok(Math.abs(decision.wanted - 6) < 0.2, `${decision.wanted}`);
  assert.deepEqual([decision.ready, decision.because], [6, 'demand']);
});

test('a burst raises the size at once, though the long window has hardly noticed', async () => {
  const { sizing } = await underDemand(20, 3, 400);
  const { ready, shortPerSecond, longPerSecond } = sizing.decide(bounds);
  assert.ok(ready >= 4, `${ready}`);
  assert.ok(shortPerSecond > 3 * longPerSecond);
});

test('when demand ends the size is held, then shrinks one step at a time down to the floor', async () => {
  const { clock, sizing } = await underDemand(10, 60, 400);
  const top = sizing.decide(bounds).ready;
  await clock.advance(25_000);
  assert.deepEqual([sizing.decide(bounds).ready, sizing.decide(bounds).because], [top, 'holding']);
  const sizes: number[] = [];
  for (let step = 0; step < 12; step += 1) {
    await clock.advance(10_000);
    sizes.push(sizing.decide(bounds).ready);
  }
  for (let step = 1; step < sizes.length; step += 1) {
    const drop = sizes[step - 1]! - sizes[step]!;
    assert.ok(drop === 0 || drop === 1, sizes.join(' '));
  }
  assert.equal(sizes.at(-1), bounds.floor);
});

test('a size is never over the ceiling nor under the floor', async () => {
  const { clock, sizing } = await underDemand(100, 10, 2_000);
  assert.deepEqual([sizing.decide(bounds).ready, sizing.decide(bounds).because], [20, 'ceiling']);
  assert.equal(sizing.decide({ floor: 2, ceiling: 3 }).ready, 3);
  await clock.advance(3_600_000);
  assert.deepEqual([sizing.decide(bounds).ready, sizing.decide(bounds).because], [1, 'floor']);
});

test('a call now and then makes no machine beyond the floor, two in a row make one', async () => {
  const { clock, sizing } = await underDemand(1 / 60, 600, 400);
  assert.equal(sizing.decide({ floor: 0, ceiling: 9 }).ready, 0);
  await clock.advance(1_000);
  sizing.taken();
  sizing.taken();
  assert.equal(sizing.decide({ floor: 0, ceiling: 9 }).ready, 1);
});

test('every decision can be said in words', async () => {
  const { sizing } = await underDemand(10, 60, 400);
  const decision = sizing.decide(bounds);
  assert.match(describeSizing(decision), /^\d+ ready: demand of 1\d\.\d\d\/s × 400 ms asks for [56]\.\d$/);
  for (const because of ['floor', 'holding', 'ceiling'] as const) {
    assert.match(describeSizing({ ...decision, because }), /^\d+ ready: (the floor|held|the ceiling)/);
  }
  assert.deepEqual(createFloorSizing().decide({ floor: 3, ceiling: 9 }).ready, 3);
});

test('a rate window forgets, and a moving average follows', () => {
  const window = createRateWindow(1_000);
  for (let at = 0; at <= 10_000; at += 100) window.add(at);
  assert.ok(Math.abs(window.perSecond(10_000) - 10) < 1);
  assert.ok(window.perSecond(15_000) < 0.1);
  const average = createMovingAverage(0.5);
  assert.equal(average.value(), undefined);
  for (const sample of [10, 20, 20]) average.add(sample);
  assert.equal(average.value(), 17.5);
});

test('the time to come back is whole seconds, from 1 to 60, after the line ahead at the measured pace', () => {
  assert.equal(retryAfterSeconds(9, 500, 2), 3);
  assert.equal(retryAfterSeconds(0, 2, 100), 1);
  assert.equal(retryAfterSeconds(1_000, 60_000, 1), 60);
  assert.equal(retryAfterSeconds(3, undefined, 1), 4);
});
