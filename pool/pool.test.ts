import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeSource, type FakeSourceOptions } from './fake-source.ts';
import type { PoolOptions } from './options.ts';
import { createPool } from './pool.ts';
import { createRestoreSemaphore } from './semaphore.ts';
import { createVirtualClock } from './virtual-clock.ts';

const base: PoolOptions = {
  ready: 2,
  blank: 1,
  max: 4,
  reuse: 'always',
  concurrency: 1,
  queue: { depth: 8, timeoutMs: 5_000 },
  ttl: { idleMs: 60_000, lifetimeMs: 3_600_000 },
};

export function world(options: Partial<PoolOptions> = {}, fake: FakeSourceOptions = {}) {
  const clock = createVirtualClock();
  const source = createFakeSource({ clock }, fake);
  const restores = createRestoreSemaphore({ limit: 4 });
  const pool = createPool({ source, clock, random: () => 0.5, restores }, { ...base, ...options });
  return { clock, source, restores, pool };
}

test('a new pool fills itself to its floor and leaves nothing behind when disposed of', async () => {
  const { clock, source, pool } = world();
  await clock.advance(2_000);
  assert.deepEqual(pool.stats().machines.ready, 2);
  assert.deepEqual(pool.stats().machines.blank, 1);
  const lease = await (async () => {
    const pending = pool.acquire();
    await clock.advance(10);
    return pending;
  })();
  assert.equal(lease.start, 'ready');
  assert.equal(lease.restoreMs, 2);
  lease.release('reusable');
  const again = await pool.acquire();
  assert.equal(again.start, 'reused');
  again.release('discard', 'crashed');
  const done = pool.dispose();
  await clock.advance(5_000);
  assert.deepEqual(await done, { leftBehind: 0 });
  assert.equal(source.alive, 0);
  assert.equal(pool.stats().defects, 0);
  assert.deepEqual(source.violations, []);
  assert.equal(clock.pending, 0);
});
