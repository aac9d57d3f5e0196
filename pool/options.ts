/** What a template's definition says about its pool, checked. */
import { GatewayError } from '../sdk/index.ts';
import { type FloorWindow, minutesOf } from './windows.ts';

/** `always`: until a TTL or `maxInvocations`; `never`: one clone per invocation; `session`: one clone per session key. */
export type ReusePolicy = 'always' | 'never' | 'session';

/** Sizes and bounds that may change while the pool lives (see `Pool.setOptions`). */
export interface PoolLimits {
  /** Floor of restored, primed and parked machines. */
  readonly ready: number;
  /** Times of the week with a higher floor. Default: none. */
  readonly windows?: readonly FloorWindow[] | undefined;
  /** Floor of started VMMs that wait for state. */
  readonly blank: number;
  /** Ceiling over everything that exists: spawning, blank, restoring, ready, serving, disposing. */
  readonly max: number;
  readonly queue: {
    /** Invocations that may wait without any machine being on its way for them. */
    readonly depth: number;
    readonly timeoutMs: number;
  };
  readonly ttl: {
    /** A serving machine without an invocation for this long is discarded (±10 %). */
    readonly idleMs: number;
    /** Age since it first served at which a machine is discarded, once nothing is in flight (±10 %). */
    readonly lifetimeMs: number;
  };
}

export interface PoolOptions extends PoolLimits {
  readonly reuse: ReusePolicy;
  /** Invocations one machine answers at the same time. */
  readonly concurrency: number;
  /** Invocations after which a machine is discarded. Default: no bound. */
  readonly maxInvocations?: number | undefined;
  /** Budget of one spawn, one restore or one wake. Default 30 s. */
  readonly restoreTimeoutMs?: number | undefined;
  /** Whether the number of ready machines follows demand between floor and `max`. Default true. */
  readonly followDemand?: boolean | undefined;
}

export type CheckedPoolOptions = {
  readonly [Key in keyof PoolOptions]-?: Exclude<PoolOptions[Key], undefined>;
};

/** Longest delay a timer can hold (2^31 − 1 ms, about 24 days). */
const longestMs = 2 ** 31 - 1;

/** Of a day. */
const lastMinute = 24 * 60 - 1;

function checkInteger(field: string, value: number, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw new GatewayError('invalid_definition', `${field} must be a whole number from ${min} to ${max}`, {
    component: 'pool',
    field,
  });
}

/** Fills the defaults. Throws `invalid_definition` naming the field that is out of range. */
export function checkPoolOptions(options: PoolOptions): CheckedPoolOptions {
  const checked: CheckedPoolOptions = {
    ...options,
    maxInvocations: options.maxInvocations ?? Number.MAX_SAFE_INTEGER,
    restoreTimeoutMs: options.restoreTimeoutMs ?? 30_000,
    followDemand: options.followDemand ?? true,
    windows: options.windows ?? [],
  };
  checkInteger('pool.max', checked.max, 1, 100_000);
  checkInteger('pool.ready', checked.ready, 0, checked.max);
  checkInteger('pool.blank', checked.blank, 0, checked.max);
  for (const [index, window] of checked.windows.entries()) {
    checkInteger(`pool.windows.${index}.ready`, window.ready, 0, checked.max);
    checkInteger(`pool.windows.${index}.from`, minutesOf(window.from), 0, lastMinute);
    checkInteger(`pool.windows.${index}.to`, minutesOf(window.to), 0, lastMinute);
  }
  checkInteger('admission.concurrency', checked.concurrency, 1, 100_000);
  checkInteger('admission.queue.depth', checked.queue.depth, 0, 1_000_000);
  checkInteger('admission.queue.timeoutMs', checked.queue.timeoutMs, 0, longestMs);
  checkInteger('ttl.idleMs', checked.ttl.idleMs, 1, longestMs);
  checkInteger('ttl.lifetimeMs', checked.ttl.lifetimeMs, 1, longestMs);
  checkInteger('maxInvocations', checked.maxInvocations, 1, Number.MAX_SAFE_INTEGER);
  checkInteger('restoreTimeoutMs', checked.restoreTimeoutMs, 1, longestMs);
  return checked;
}
