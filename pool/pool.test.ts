import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeSource, type FakeSource, fakeDigest } from './fake-source.ts';
import type { PoolMachine } from './port.ts';
import { createWorld, nothingLeft } from './test-world.ts';

test('a new pool fills itself to its floor, ready machines first, and leaves nothing behind', async () => {
  const { clock, pool, end } = createWorld();
  assert.equal(pool.size, 3);
  await clock.advance(60 + 320 + 60);
  const { machines, restores, spawns } = pool.stats();
  assert.deepEqual([machines.ready, machines.blank, restores, spawns], [2, 1, 2, 3]);
  assert.deepEqual(await end(), nothingLeft);
});

test('a draining pool refuses new acquires, serves who waits, lets leases finish and then ends', async () => {
  const { clock, pool, end } = createWorld({ pool: { max: 1, ready: 1, blank: 0 } });
  await clock.advance(1_000);
  const first = pool.acquire();
  await clock.advance(2);
  const lease = await first;
  const waiting = pool.acquire();
  let isDrained = false;
  const drained = pool.drain().then(() => {
    isDrained = true;
  });
  await assert.rejects(pool.acquire(), { code: 'draining' });
  await clock.advance(100);
  assert.equal(isDrained, false);
  lease.release('reusable');
  const second = await waiting;
  assert.equal(second.start, 'reused');
  await clock.advance(100);
  assert.equal(isDrained, false);
  second.release('reusable');
  await clock.advance(5);
  await drained;
  assert.equal(pool.size, 0);
  assert.equal(pool.stats().discards.drained, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('dispose ends leased machines and refuses waiters, and a later release is harmless', async () => {
  const { clock, pool, end } = createWorld({ pool: { max: 1, ready: 1, blank: 0 } });
  await clock.advance(1_000);
  const first = pool.acquire();
  await clock.advance(2);
  const lease = await first;
  const refused = assert.rejects(pool.acquire(), { code: 'draining' });
  const ended = end();
  await refused;
  assert.deepEqual(await ended, nothingLeft);
  assert.deepEqual(await lease.gone, { reason: 'pool_disposed' });
  lease.release('reusable');
  assert.equal(pool.stats().leased, 0);
});

test('dispose does not wait for ever, and says how many machines had not ended', async () => {
  const { clock, pool } = createWorld({ pool: { ready: 1, blank: 1 }, source: { disposeMs: 100_000 } });
  await clock.advance(1_000);
  const disposed = pool.dispose();
  await clock.advance(30_000);
  assert.deepEqual(await disposed, { leftBehind: 2 });
});

test('shedding takes blanks first, then ready machines above the floor, never leased ones, and holds refill', async () => {
  const { clock, pool, end } = createWorld();
  await clock.advance(1_000);
  pool.setOptions({ ready: 1 });
  const held = pool.acquire();
  await clock.advance(2);
  const lease = await held;
  pool.setOptions({ ready: 0, blank: 1 });
  assert.equal(pool.shed(9), 2);
  await clock.advance(100);
  assert.deepEqual([pool.size, pool.stats().discards.shed], [1, 2]);
  await clock.advance(9_000);
  assert.equal(pool.size, 1, 'refill is held');
  await clock.advance(1_500);
  assert.equal(pool.stats().machines.blank, 1, 'refill goes on');
  lease.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('a lowered max takes idle machines at once and leased ones when they are released', async () => {
  const { clock, pool, end } = createWorld({ pool: { max: 4, ready: 2, blank: 2 } });
  await clock.advance(1_000);
  const held = pool.acquire();
  await clock.advance(2);
  const lease = await held;
  pool.setOptions({ ready: 0, blank: 0, max: 1 });
  await clock.advance(10);
  assert.deepEqual([pool.stats().machines.ready, pool.stats().machines.blank], [0, 0]);
  await clock.advance(400);
  assert.equal(pool.size, 1, 'what was being restored has landed and gone');
  lease.release('reusable');
  await clock.advance(10);
  assert.equal(pool.size, 1);
  assert.throws(() => pool.setOptions({ ready: 2 }), { code: 'invalid_definition' });
  assert.deepEqual(await end(), nothingLeft);
});

test('a raised floor is filled and a lowered one shrinks step by step', async () => {
  const { clock, pool, end } = createWorld({ pool: { ready: 0, blank: 0 } });
  pool.setOptions({ ready: 3 });
  await clock.advance(1_000);
  assert.equal(pool.stats().machines.ready, 3);
  pool.setOptions({ ready: 1 });
  await clock.advance(4_000);
  assert.equal(pool.stats().machines.ready, 3);
  await clock.advance(1_100);
  assert.equal(pool.stats().machines.ready, 2);
  await clock.advance(5_100);
  assert.equal(pool.stats().machines.ready, 1);
  await clock.advance(60_000);
  assert.equal(pool.stats().machines.ready, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('a parked machine of an earlier run is adopted as ready, unless it is of another version or over max', async () => {
  const { clock, pool, source, end } = createWorld({ pool: { ready: 1, blank: 0, max: 1 } });
  const { signal } = new AbortController();
  const make = async (from: FakeSource) =>
    from.restore(await from.spawnBlank({ signal }), { signal, awake: false });
  const made = Promise.all([make(source), make(createFakeSource({ clock }, { digest: fakeDigest('b') }))]);
  await clock.advance(1_000);
  const [machine, foreign] = await made;
  assert.equal(pool.adopt(machine), false, 'the pool is full');
  pool.setOptions({ max: 2 });
  assert.equal(pool.adopt(foreign), false, 'of another version');
  assert.equal(pool.adopt(machine), true);
  assert.equal(pool.stats().machines.ready, 2);
  assert.deepEqual(await end(), nothingLeft);
});

test('a machine of another version is never handed out', async () => {
  const { clock, pool, source, end } = createWorld({ pool: { ready: 1, blank: 0, max: 2 } });
  const restore = source.restore.bind(source);
  let isStale = true;
  const stale = (machine: PoolMachine) => Object.assign(machine, { digest: fakeDigest('b') });
  Object.assign(source, {
    restore: async (...args: Parameters<typeof restore>) => {
      const machine = await restore(...args);
      return isStale ? stale(machine) : machine;
    },
  });
  const waiting = assert.rejects(pool.acquire(), { code: 'restore_failed' });
  await clock.advance(2_000);
  await waiting;
  assert.equal(pool.stats().machines.ready, 0);
  assert.ok(pool.stats().failures.stale >= 3);
  isStale = false;
  await clock.advance(60_000);
  assert.equal(pool.stats().machines.ready, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('an observer sees every transition of a machine in order', async () => {
  const seen: string[] = [];
  const { clock, pool, end } = createWorld({
    pool: { ready: 1, blank: 0, max: 1, reuse: 'never' },
    deps: { observer: { transition: ({ from, to, event }) => seen.push(`${from} ${event} ${to}`) } },
  });
  await clock.advance(1_000);
  const held = pool.acquire();
  await clock.advance(2);
  (await held).release('reusable');
  await clock.advance(5);
  assert.deepEqual(seen.slice(0, 10), [
    'spawning spawned blank',
    'blank enqueue queued',
    'queued load restoring',
    'restoring restored ready',
    'ready wake waking',
    'waking woken serving',
    'serving lease serving',
    'serving release serving',
    'serving discard disposing',
    'disposing disposed disposed',
  ]);
  assert.deepEqual(await end(), nothingLeft);
});

test('an observer that throws is counted as a defect and harms no machine', async () => {
  const defects: unknown[] = [];
  const observer = {
    transition: () => {
      throw new Error('metric misspelt');
    },
    defect: (error: unknown) => defects.push(error),
  };
  const { clock, pool, source } = createWorld({ pool: { ready: 1, blank: 0, max: 1 }, deps: { observer } });
  await clock.advance(1_000);
  assert.equal(pool.stats().machines.ready, 1);
  assert.ok(defects.length > 0);
  assert.equal(pool.stats().defects, defects.length);
  const disposed = pool.dispose();
  await clock.advance(1_000);
  assert.deepEqual(await disposed, { leftBehind: 0 });
  assert.equal(source.alive, 0);
});
