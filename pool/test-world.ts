/** A pool over a fake source under a virtual clock: the ground of this folder's tests. */

import type { PoolDeps } from './engine.ts';
import { createFakeSource, type FakeSourceOptions } from './fake-source.ts';
import type { PoolOptions } from './options.ts';
import { createPool } from './pool.ts';
import { createRestoreSemaphore } from './semaphore.ts';
import { createVirtualClock } from './virtual-clock.ts';

/** Options of a plain pool; tests name what they change. */
export const plainOptions: PoolOptions = {
  ready: 2,
  blank: 1,
  max: 4,
  reuse: 'always',
  concurrency: 1,
  queue: { depth: 8, timeoutMs: 5_000 },
  ttl: { idleMs: 60_000, lifetimeMs: 3_600_000 },
  followDemand: false,
};

export interface WorldOptions {
  readonly pool?: Partial<PoolOptions>;
  readonly source?: FakeSourceOptions;
  readonly deps?: Partial<PoolDeps>;
  /** Restores at once; default 4. */
  readonly concurrentRestores?: number;
}

/** Jitter is off: `random` answers 0.5 unless told otherwise. The caller disposes of the pool. */
export function createWorld(options: WorldOptions = {}) {
  const clock = createVirtualClock();
  const source = createFakeSource({ clock }, options.source);
  const restores = createRestoreSemaphore({ limit: options.concurrentRestores ?? 4 });
  const deps: PoolDeps = { source, clock, random: () => 0.5, restores, ...options.deps };
  const pool = createPool(deps, { ...plainOptions, ...options.pool });

  /** Disposes of the pool and says what was left, which must be nothing. */
  async function end() {
    let isDone = false;
    const done = pool.dispose().finally(() => {
      isDone = true;
    });
    for (let waitedMs = 0; !isDone && waitedMs < 60_000; waitedMs += 5) await clock.advance(5);
    const { leftBehind } = await done;
    const { defects } = pool.stats();
    const permits = restores.stats().inUse;
    return {
      leftBehind,
      defects,
      permits,
      alive: source.alive,
      timers: clock.pending,
      violations: source.violations,
    };
  }
  return { clock, source, restores, pool, end };
}

/** What {@link createWorld}'s `end` answers when all is well. */
export const nothingLeft = { leftBehind: 0, defects: 0, permits: 0, alive: 0, timers: 0, violations: [] };
