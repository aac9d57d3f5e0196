/** What the parts of one pool share. Made by `createPool`; nothing outside the folder sees it. */
import type { Clock, VersionDigest } from '../sdk/index.ts';
import type { BringUp } from './bring-up.ts';
import type { guardObserver } from './observer.ts';
import type { CheckedPoolOptions } from './options.ts';
import type { Slot } from './slot.ts';
import type { PoolCounters } from './stats.ts';
import type { WaitLine } from './waiters.ts';

export interface PoolContext {
  readonly digest: VersionDigest;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  readonly observer: ReturnType<typeof guardObserver>;
  readonly counters: PoolCounters;
  readonly slots: Set<Slot>;
  readonly line: WaitLine;
  readonly bringUp: BringUp;
  /** Replaced as a whole when the limits change. */
  readonly options: () => CheckedPoolOptions;
  /** Looks at everything again: grants, bring-ups, refill. Safe to call from within itself. */
  readonly round: () => void;
}
