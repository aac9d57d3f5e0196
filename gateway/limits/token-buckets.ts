/** Rates with bursts: a bucket of tokens each, refilled as time passes. */
import { LRUCache } from 'lru-cache';
import type { Clock } from '../../sdk/index.ts';

export interface Rate {
  readonly perSecond: number;
  /** Tokens a bucket holds at the most: what may come in one instant. */
  readonly burst: number;
}

/** Whether a request may pass, and if not, when the next one may. */
export type Taken =
  | { readonly isTaken: true }
  | { readonly isTaken: false; readonly retryAfterSeconds: number };

export interface TokenBuckets {
  /** Takes a token from the bucket of `name`, which is full when nobody asked for it lately. */
  take(name: string, rate: Rate): Taken;
}

/** A bucket that is forgotten is full again, so this bounds memory and not correctness of the busy ones. */
const maxBuckets = 10_000;

/** A burst of one second's worth, and of one request at least. */
export const rateOf = (perSecond: number): Rate => ({ perSecond, burst: Math.max(1, Math.ceil(perSecond)) });

export function createTokenBuckets(deps: { readonly clock: Clock }): TokenBuckets {
  const buckets = new LRUCache<string, { tokens: number; at: number }>({ max: maxBuckets });
  return {
    take(name, { perSecond, burst }) {
      const now = deps.clock.monotonic();
      let bucket = buckets.get(name);
      if (bucket === undefined) {
        bucket = { tokens: burst, at: now };
        buckets.set(name, bucket);
      }
      bucket.tokens = Math.min(burst, bucket.tokens + (Math.max(0, now - bucket.at) / 1000) * perSecond);
      bucket.at = now;
      if (bucket.tokens >= 1) {
        bucket.tokens -= 1;
        return { isTaken: true };
      }
      return { isTaken: false, retryAfterSeconds: Math.max(1, Math.ceil((1 - bucket.tokens) / perSecond)) };
    },
  };
}
