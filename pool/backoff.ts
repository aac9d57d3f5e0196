/** When background work may be tried again after failures: exponential, with jitter, bounded. */
import type { Clock } from '../sdk/index.ts';

export interface Backoff {
  /** Milliseconds until the next try is allowed; 0 when it is allowed now. */
  waitMs(): number;
  /** Notes a failure and pushes the next try away. */
  failed(): void;
}

/**
 * Doubles from `baseMs` to `ceilingMs`; each delay is drawn from its upper half. Only quiet time resets it, not a
 * success: a machine that restores well and dies a moment later must not make a hot loop.
 */
export function createBackoff(
  deps: { readonly clock: Clock; readonly random: () => number },
  options: { readonly baseMs?: number; readonly ceilingMs?: number; readonly quietMs?: number } = {},
): Backoff {
  const { baseMs = 200, ceilingMs = 30_000, quietMs = 60_000 } = options;
  let level = 0;
  let retryAt = Number.NEGATIVE_INFINITY;
  return {
    waitMs: () => Math.max(0, retryAt - deps.clock.monotonic()),
    failed() {
      const now = deps.clock.monotonic();
      // Several machines failing together are one failure.
      if (now < retryAt) return;
      if (now - retryAt > quietMs) level = 0;
      const delayMs = Math.min(ceilingMs, baseMs * 2 ** level);
      level = Math.min(level + 1, 20);
      retryAt = now + delayMs * (0.5 + deps.random() / 2);
    },
  };
}
