/** API keys: `e2b_<40 hex>`, valid for both doors. Only their hashes are stored, so a stolen database opens nothing. */
import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { LRUCache } from 'lru-cache';
import {
  type Clock,
  type CreatedKey,
  GatewayError,
  type KeyInfo,
  type KeyLimits,
  keyLimitsSchema,
  randomName,
} from '../../sdk/index.ts';
import { createKeyUsage } from './usage.ts';

/** Who a valid key belongs to. */
export interface KeyIdentity {
  readonly id: string;
  readonly name: string;
  readonly limits: KeyLimits;
}

export interface KeyStore extends Disposable {
  /** Null for anything but a stored key. Notes the use, which reaches the database some seconds later. */
  verify(key: string): KeyIdentity | null;
  /**
   * Counts one request of a key that takes a machine.
   * @throws GatewayError `quota_exceeded`, `rate_limited`
   */
  spend(identity: KeyIdentity): void;
  /** Requests that count, of this UTC day, made with the key. */
  requestsToday(id: string): number;
  /** The answer is the only place where the key itself ever appears. Without limits it has none. */
  create(name: string, limits?: KeyLimits): CreatedKey;
  list(): KeyInfo[];
  /** @throws GatewayError `key_not_found` */
  remove(id: string): void;
  /** Creates a key when there is none at all; null when there is one. For the first start. */
  ensureFirstKey(name: string): CreatedKey | null;
  /** Writes noted uses. The database stays open: it is the caller's. */
  [Symbol.dispose](): void;
}

export interface KeyStoreOptions {
  /** How long a use may wait for its note in the database, milliseconds. Default 10 s. */
  readonly flushMs?: number;
  /** How long another process's removal of a key may go unseen, milliseconds. Default 2 s. */
  readonly cacheMs?: number;
}

const keyPattern = /^e2b_[0-9a-f]{40}$/;
const prefixLength = 12;
const maxCached = 10_000;

interface Row {
  readonly id: string;
  readonly name: string;
  readonly prefix: string;
  readonly hash: Uint8Array;
  readonly created_at: number;
  readonly last_used_at: number | null;
  readonly limits: string | null;
}

/** Creates its table on first use. */
export function createKeyStore(
  db: DatabaseSync,
  deps: { readonly clock: Clock },
  options: KeyStoreOptions = {},
): KeyStore {
  const { clock } = deps;
  const flushMs = options.flushMs ?? 10_000;
  const cacheMs = options.cacheMs ?? 2000;
  db.exec(`CREATE TABLE IF NOT EXISTS api_keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL, hash BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL, last_used_at INTEGER, limits TEXT
  ) STRICT`);
  // A database of an earlier release has no such column.
  const columns = db.prepare('PRAGMA table_info(api_keys)').all() as unknown as { readonly name: string }[];
  if (!columns.some(({ name }) => name === 'limits')) db.exec('ALTER TABLE api_keys ADD COLUMN limits TEXT');
  const usage = createKeyUsage(db, { clock }, { flushMs });
  const selectByHash = db.prepare('SELECT * FROM api_keys WHERE hash = ?');
  const selectAll = db.prepare('SELECT * FROM api_keys ORDER BY created_at, id');
  const insert = db.prepare(
    'INSERT INTO api_keys (id, name, prefix, hash, created_at, limits) VALUES (?, ?, ?, ?, ?, ?)',
  );
  const remove = db.prepare('DELETE FROM api_keys WHERE id = ?');
  const touch = db.prepare('UPDATE api_keys SET last_used_at = ? WHERE id = ?');
  const cache = new LRUCache<string, { readonly identity: KeyIdentity; readonly readAt: number }>({
    max: maxCached,
  });
  const uses = new Map<string, number>();
  let cancelFlush: (() => void) | undefined;

  const flush = () => {
    cancelFlush?.();
    cancelFlush = undefined;
    for (const [id, usedAt] of uses) touch.run(usedAt, id);
    uses.clear();
  };
  const noteUse = (identity: KeyIdentity): KeyIdentity => {
    uses.set(identity.id, clock.now());
    cancelFlush ??= clock.schedule(flushMs, flush);
    return identity;
  };
  const create = (name: string, limits: KeyLimits = noLimits): CreatedKey => {
    const key = `e2b_${randomBytes(20).toString('hex')}`;
    const info = {
      id: `key${randomName(12)}`,
      name,
      prefix: key.slice(0, prefixLength),
      createdAt: clock.now(),
    };
    insert.run(info.id, info.name, info.prefix, digestOf(key), info.createdAt, JSON.stringify(limits));
    return { ...info, lastUsedAt: null, limits, requestsToday: 0, key };
  };
  return {
    verify(key) {
      if (!keyPattern.test(key)) return null;
      const digest = digestOf(key);
      const cacheKey = digest.toString('latin1');
      const cached = cache.get(cacheKey);
      if (cached !== undefined && clock.monotonic() - cached.readAt < cacheMs)
        return noteUse(cached.identity);
      cache.delete(cacheKey);
      const row = selectByHash.get(digest) as unknown as Row | undefined;
      if (row === undefined || !timingSafeEqual(row.hash, digest)) return null;
      const identity = { id: row.id, name: row.name, limits: limitsOf(row) };
      cache.set(cacheKey, { identity, readAt: clock.monotonic() });
      return noteUse(identity);
    },
    spend: (identity) => usage.spend(identity),
    requestsToday: (id) => usage.requestsToday(id),
    create,
    list() {
      flush();
      return (selectAll.all() as unknown as Row[]).map((row) => ({
        id: row.id,
        name: row.name,
        prefix: row.prefix,
        createdAt: row.created_at,
        lastUsedAt: row.last_used_at,
        limits: limitsOf(row),
        requestsToday: usage.requestsToday(row.id),
      }));
    },
    remove(id) {
      cache.clear();
      uses.delete(id);
      usage.forget(id);
      if (remove.run(id).changes === 0) {
        throw new GatewayError('key_not_found', 'there is no key with this id', { extra: { id } });
      }
    },
    ensureFirstKey: (name) => (selectAll.get() === undefined ? create(name) : null),
    [Symbol.dispose]() {
      flush();
      usage[Symbol.dispose]();
    },
  };
}

const noLimits: KeyLimits = keyLimitsSchema.parse({});

const limitsOf = ({ limits }: Row): KeyLimits =>
  limits === null ? noLimits : keyLimitsSchema.parse(JSON.parse(limits));

const digestOf = (key: string): Buffer => hash('sha256', key, 'buffer');
