/** What keys have used of their quotas, by UTC day. Held in memory and noted in the database some seconds later. */
import type { DatabaseSync } from 'node:sqlite';
import { type Clock, GatewayError, type KeyLimits } from '../../sdk/index.ts';
import { createTokenBuckets, rateOf } from '../limits/token-buckets.ts';

export interface KeyUsage extends Disposable {
  /**
   * Counts one request that takes a machine: a call of a function, a new sandbox or fork.
   * @throws GatewayError `quota_exceeded`, `rate_limited`; then nothing is counted
   */
  spend(key: { readonly id: string; readonly limits: KeyLimits }): void;
  /** Requests of this day so far. */
  requestsToday(id: string): number;
  /** Drops what is known of a removed key. */
  forget(id: string): void;
  /** Writes what is not in the database yet. */
  flush(): void;
}

const dayMs = 86_400_000;

/** Creates its table on first use. Several gateways on one database each see their own share until they flush. */
export function createKeyUsage(
  db: DatabaseSync,
  deps: { readonly clock: Clock },
  options: { readonly flushMs: number },
): KeyUsage {
  const { clock } = deps;
  db.exec(`CREATE TABLE IF NOT EXISTS key_usage (
    key_id TEXT NOT NULL, day INTEGER NOT NULL, requests INTEGER NOT NULL, PRIMARY KEY (key_id, day)
  ) STRICT`);
  const select = db.prepare('SELECT requests FROM key_usage WHERE key_id = ? AND day = ?');
  const add = db.prepare(`INSERT INTO key_usage (key_id, day, requests) VALUES (?, ?, ?)
    ON CONFLICT (key_id, day) DO UPDATE SET requests = requests + excluded.requests`);
  const expire = db.prepare('DELETE FROM key_usage WHERE day < ?');
  const remove = db.prepare('DELETE FROM key_usage WHERE key_id = ?');
  const buckets = createTokenBuckets({ clock });
  /** Requests not in the database yet, and those that were there when the key was first met this day. */
  const counts = new Map<string, { stored: number; fresh: number }>();
  let day = Math.floor(clock.now() / dayMs);
  let cancelFlush: (() => void) | undefined;

  const flush = () => {
    cancelFlush?.();
    cancelFlush = undefined;
    for (const [id, count] of counts) {
      if (count.fresh === 0) continue;
      add.run(id, day, count.fresh);
      count.stored += count.fresh;
      count.fresh = 0;
    }
  };
  const countOf = (id: string) => {
    const today = Math.floor(clock.now() / dayMs);
    if (today !== day) {
      flush();
      counts.clear();
      expire.run(today - 31);
      day = today;
    }
    let count = counts.get(id);
    if (count === undefined) {
      const row = select.get(id, day) as { readonly requests: number } | undefined;
      count = { stored: row?.requests ?? 0, fresh: 0 };
      counts.set(id, count);
    }
    return count;
  };

  return {
    spend({ id, limits }) {
      const count = countOf(id);
      const used = count.stored + count.fresh;
      const { requestsPerDay, ratePerSecond } = limits;
      if (requestsPerDay !== null && used >= requestsPerDay) {
        throw new GatewayError('quota_exceeded', `this key made its ${requestsPerDay} requests of today`, {
          retryAfterSeconds: Math.ceil(((day + 1) * dayMs - clock.now()) / 1000),
          extra: { limit: requestsPerDay, used, knob: 'key.limits.requestsPerDay' },
        });
      }
      if (ratePerSecond !== null) {
        const taken = buckets.take(id, rateOf(ratePerSecond));
        if (!taken.isTaken) {
          throw new GatewayError('rate_limited', `this key may make ${ratePerSecond} requests a second`, {
            retryAfterSeconds: taken.retryAfterSeconds,
            extra: { limit: ratePerSecond, knob: 'key.limits.ratePerSecond' },
          });
        }
      }
      count.fresh += 1;
      cancelFlush ??= clock.schedule(options.flushMs, flush);
    },
    requestsToday(id) {
      const { stored, fresh } = countOf(id);
      return stored + fresh;
    },
    forget(id) {
      counts.delete(id);
      remove.run(id);
    },
    flush,
    [Symbol.dispose]: flush,
  };
}
