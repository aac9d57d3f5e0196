import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { GatewayError } from '../sdk/index.ts';
import { createBackoff } from './backoff.ts';
import { planRefill } from './refill.ts';
import { createWorld, nothingLeft } from './test-world.ts';
import { createVirtualClock } from './virtual-clock.ts';

test('a plan spawns what is missing, restores what is spare, and keeps the floor of blanks while there are places', () => {
  const none = { ready: 0, restoring: 0, blank: 0, spawning: 0, places: 9 };
  const want = { ready: 2, blank: 1 };
  assert.deepEqual(planRefill(none, want), { missing: 2, restore: 0, spawn: 3 });
  assert.deepEqual(planRefill({ ...none, spawning: 3 }, want), { missing: 2, restore: 0, spawn: 0 });
  assert.deepEqual(planRefill({ ...none, ready: 1, blank: 1 }, want), { missing: 1, restore: 0, spawn: 1 });
  assert.deepEqual(planRefill({ ...none, ready: 1, blank: 2 }, want), { missing: 1, restore: 1, spawn: 0 });
  assert.deepEqual(planRefill({ ...none, ready: 1, blank: 1, places: 0 }, want), {
    missing: 1,
    restore: 1,
    spawn: 0,
  });
  assert.deepEqual(planRefill({ ...none, ready: 5, blank: 5 }, want), { missing: 0, restore: 0, spawn: 0 });
});

test('a plan never exceeds the places, the blanks there are, or what is missing', () => {
  const count = fc.nat({ max: 6 });
  const have = fc.record({ ready: count, restoring: count, blank: count, spawning: count, places: count });
  fc.assert(
    fc.property(have, fc.record({ ready: count, blank: count }), (inventory, want) => {
      const { missing, restore, spawn } = planRefill(inventory, want);
      assert.ok(spawn >= 0 && spawn <= inventory.places);
      assert.ok(restore >= 0 && restore <= Math.min(inventory.blank, missing));
    }),
    { seed: 7, numRuns: 500 },
  );
});

test('a source that always fails is tried ever more seldom, and its last failure is shown', async () => {
  const { clock, pool, end } = createWorld({
    pool: { ready: 1, blank: 0 },
    source: { fail: () => new Error('no space left') },
  });
  await clock.advance(60_000);
  const early = pool.stats().failures.spawn;
  await clock.advance(540_000);
  const late = pool.stats().failures.spawn - early;
  assert.ok(early >= 6 && early <= 12, `${early} tries in the first minute`);
  assert.ok(late >= 15 && late <= 30, `${late} tries in the nine minutes after it`);
  assert.equal(pool.stats().lastFailure?.message, 'no space left');
  assert.deepEqual(await end(), nothingLeft);
});

test('a machine that restores well and dies at once does not make a hot loop', async () => {
  const { clock, pool, source, end } = createWorld({ pool: { ready: 1, blank: 0 } });
  for (let tick = 0; tick < 600; tick += 1) {
    await clock.advance(100);
    for (const id of source.held.keys()) source.kill(id);
  }
  assert.ok(pool.stats().spawns <= 12, `${pool.stats().spawns} spawns in a minute`);
  assert.deepEqual(await end(), nothingLeft);
});

test('the floor comes back when the source has recovered', async () => {
  let isBroken = true;
  const fail = () => (isBroken ? new Error('broken') : undefined);
  const { clock, pool, end } = createWorld({ source: { fail } });
  await clock.advance(120_000);
  isBroken = false;
  await clock.advance(40_000);
  assert.deepEqual([pool.stats().machines.ready, pool.stats().machines.blank], [2, 1]);
  assert.deepEqual(await end(), nothingLeft);
});

test('a node without a place for refill has its blanks made ready instead, and is asked again later', async () => {
  let places = 1;
  const admit = () =>
    places-- > 0
      ? ({ kind: 'granted' } as const)
      : ({ kind: 'refused', error: new GatewayError('node_at_capacity', 'full') } as const);
  const { clock, pool, end } = createWorld({ pool: { ready: 1, blank: 1 }, deps: { admit } });
  await clock.advance(900);
  assert.deepEqual([pool.stats().machines.ready, pool.stats().machines.blank], [1, 0]);
  places = 1;
  await clock.advance(1_500);
  assert.deepEqual([pool.stats().machines.ready, pool.stats().machines.blank], [1, 1]);
  assert.deepEqual(await end(), nothingLeft);
});

test('demand raises the number of ready machines at once, up to max, and lets it sink slowly', async () => {
  const { clock, pool, end } = createWorld({
    pool: { reuse: 'never', ready: 1, blank: 0, max: 12, followDemand: true },
  });
  await clock.advance(1_000);
  for (let call = 0; call < 100; call += 1) {
    void pool.acquire().then((lease) => lease.release('reusable'));
    await clock.advance(200);
  }
  const { sizing } = pool.stats();
  assert.ok(sizing.ready >= 3 && sizing.ready <= 12, JSON.stringify(sizing));
  assert.equal(sizing.because, 'demand');
  const { starts } = pool.stats();
  assert.ok(starts.ready > 90, JSON.stringify(starts));
  await clock.advance(20_000);
  assert.ok(pool.stats().machines.ready >= 3, 'held for a while');
  await clock.advance(300_000);
  assert.deepEqual([pool.stats().machines.ready, pool.stats().sizing.because], [1, 'floor']);
  assert.deepEqual(await end(), nothingLeft);
});

test('a backoff doubles to its ceiling, counts failures together as one, and forgets after quiet time', async () => {
  const clock = createVirtualClock();
  const backoff = createBackoff(
    { clock, random: () => 1 },
    { baseMs: 100, ceilingMs: 1_000, quietMs: 5_000 },
  );
  assert.equal(backoff.waitMs(), 0);
  const waits: number[] = [];
  for (let round = 0; round < 6; round += 1) {
    backoff.failed();
    backoff.failed();
    waits.push(backoff.waitMs());
    await clock.advance(backoff.waitMs());
  }
  assert.deepEqual(waits, [100, 200, 400, 800, 1_000, 1_000]);
  await clock.advance(5_001);
  backoff.failed();
  assert.equal(backoff.waitMs(), 100);
});
