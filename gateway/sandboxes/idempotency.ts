/** Answers that were given under an `Idempotency-Key`, so that a repeated request gets them again and does nothing twice. */
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { type Clock, GatewayError, headerNames } from '../../sdk/index.ts';

/** What makes two requests the same. */
export interface KeyedRequest {
  /** Secret of the caller: keys of different callers never meet, and a stolen database opens no answer. */
  readonly caller: string;
  readonly key: string;
  /** Method and path. */
  readonly route: string;
  readonly body: string | Uint8Array;
}

/** An answer that JSON can carry, and whether it may be kept: one that only says "not now" must leave the key free. */
export type FreshAnswer<T extends object> = T & { readonly isFinal: boolean };

export interface IdempotencyStore {
  /**
   * The kept answer of the same request, or that of `work`, which then is kept. Those who come while it runs wait for it.
   * @throws GatewayError `conflict` for a key that came with another request, and for one whose first request was cut off by
   * a stop of the gateway, so that nobody knows what it did
   */
  run<T extends object>(
    request: KeyedRequest,
    work: () => Promise<FreshAnswer<T>>,
  ): Promise<T & { readonly isReplay: boolean }>;
}

const keyPattern = /^[\x21-\x7e]{1,255}$/;

/** The store for a request with this key. @throws GatewayError `invalid_request` for an unusable key, or when there is no store */
export function requireStore(store: IdempotencyStore | undefined, key: string): IdempotencyStore {
  const refuse = (what: string) =>
    new GatewayError('invalid_request', `Idempotency-Key ${what}`, { field: headerNames.idempotencyKey });
  if (!keyPattern.test(key)) throw refuse('must be 1 to 255 visible ASCII characters');
  if (store === undefined) throw refuse('is not kept by this gateway');
  return store;
}

/** How long an answer is kept, milliseconds. */
const keptMs = 24 * 3_600_000;
/** Most answers kept, and their bytes; the oldest make room. */
const maxKept = 100_000;
const defaultMaxBytes = 256 * 1024 * 1024;
/** Removal of expired answers is amortised over this many new ones. */
const sweepEvery = 256;

interface Row {
  readonly request: Uint8Array;
  readonly answer: Uint8Array | null;
}

/**
 * Creates its table on first use. Bodies are sealed with a key made from the caller's secret, because an answer may carry the
 * token of a sandbox; the database stays the caller's.
 */
export function createIdempotencyStore(
  db: DatabaseSync,
  deps: { readonly clock: Clock },
  options: { readonly maxBytes?: number } = {},
): IdempotencyStore {
  const { clock } = deps;
  const { maxBytes = defaultMaxBytes } = options;
  db.exec(`CREATE TABLE IF NOT EXISTS idempotent_answers (
    key BLOB PRIMARY KEY, request BLOB NOT NULL, answer BLOB, created_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID`);
  db.exec('CREATE INDEX IF NOT EXISTS idempotent_answers_age ON idempotent_answers (created_at)');
  const select = db.prepare(
    'SELECT request, answer FROM idempotent_answers WHERE key = ? AND created_at > ?',
  );
  const insert = db.prepare(
    'INSERT OR REPLACE INTO idempotent_answers (key, request, created_at) VALUES (?, ?, ?)',
  );
  const keep = db.prepare('UPDATE idempotent_answers SET answer = ? WHERE key = ?');
  const remove = db.prepare('DELETE FROM idempotent_answers WHERE key = ?');
  const expire = db.prepare('DELETE FROM idempotent_answers WHERE created_at <= ?');
  const trim = db.prepare(`DELETE FROM idempotent_answers WHERE key IN
    (SELECT key FROM idempotent_answers ORDER BY created_at DESC LIMIT -1 OFFSET ?)`);
  const size = db.prepare('SELECT coalesce(sum(length(answer)), 0) AS bytes FROM idempotent_answers');
  const removeOldest = db.prepare(`DELETE FROM idempotent_answers WHERE key =
    (SELECT key FROM idempotent_answers WHERE answer IS NOT NULL ORDER BY created_at LIMIT 1)
    RETURNING length(answer) AS bytes`);
  const running = new Map<
    string,
    { readonly request: Buffer; readonly answer: Promise<FreshAnswer<object>> }
  >();
  let untilSweep = 0;
  let keptBytes = 0;

  const begin = (key: Buffer, request: Buffer) => {
    if (untilSweep === 0) {
      expire.run(clock.now() - keptMs);
      trim.run(maxKept);
      keptBytes = Number(size.get()?.bytes);
      untilSweep = sweepEvery;
    }
    untilSweep -= 1;
    insert.run(key, request, clock.now());
  };

  const keepAnswer = (key: Buffer, sealed: Buffer) => {
    keep.run(sealed, key);
    keptBytes += sealed.length;
    while (keptBytes > maxBytes) {
      const removed = removeOldest.get();
      if (removed === undefined) break;
      keptBytes -= Number(removed.bytes);
    }
  };

  return {
    async run<T extends object>(keyed: KeyedRequest, work: () => Promise<FreshAnswer<T>>) {
      const key = digest(keyed, 'key');
      const request = digest(keyed, 'request', keyed.route, keyed.body);
      const name = key.toString('latin1');
      const other = running.get(name);
      if (other !== undefined) {
        if (!other.request.equals(request)) throw otherRequest();
        return { ...withoutFinality((await other.answer) as FreshAnswer<T>), isReplay: true };
      }
      const row = select.get(key, clock.now() - keptMs) as unknown as Row | undefined;
      if (row !== undefined) {
        if (!request.equals(row.request)) throw otherRequest();
        if (row.answer === null) throw interrupted();
        return { ...(unseal(keyed, row.answer) as T), isReplay: true };
      }
      // Noted before the work begins: after a crash in between, nobody may believe that nothing was done.
      begin(key, request);
      const answer = work();
      running.set(name, { request, answer });
      try {
        const fresh = await answer;
        const kept = withoutFinality(fresh);
        if (fresh.isFinal) keepAnswer(key, seal(keyed, kept));
        else remove.run(key);
        return { ...kept, isReplay: false };
      } catch (error) {
        remove.run(key);
        throw error;
      } finally {
        running.delete(name);
      }
    },
  };
}

function withoutFinality<T extends object>({ isFinal: _isFinal, ...answer }: FreshAnswer<T>): T {
  return answer as unknown as T;
}

/** Unforgeable and telling nothing without the caller's secret. Lengths keep the parts apart. */
function digest({ caller, key }: KeyedRequest, ...parts: readonly (string | Uint8Array)[]): Buffer {
  const mac = createHmac('sha256', caller);
  for (const part of [key, ...parts]) mac.update(`${Buffer.byteLength(part)}:`).update(part);
  return mac.digest();
}

const sealingKey = ({ caller, key }: KeyedRequest): Buffer =>
  Buffer.from(hkdfSync('sha256', caller, key, 'snapgate idempotent answer', 32));

function seal(request: KeyedRequest, answer: object): Buffer {
  const nonce = randomBytes(12);
  const cipher = createCipheriv('aes-256-gcm', sealingKey(request), nonce);
  const sealed = Buffer.concat([cipher.update(JSON.stringify(answer), 'utf8'), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
}

function unseal(request: KeyedRequest, bytes: Uint8Array): unknown {
  const cipher = createDecipheriv('aes-256-gcm', sealingKey(request), bytes.subarray(0, 12));
  cipher.setAuthTag(bytes.subarray(12, 28));
  const text = Buffer.concat([cipher.update(bytes.subarray(28)), cipher.final()]).toString('utf8');
  return JSON.parse(text);
}

const otherRequest = () =>
  new GatewayError('conflict', 'this Idempotency-Key was used for another request', {
    field: headerNames.idempotencyKey,
  });

const interrupted = () =>
  new GatewayError(
    'conflict',
    'the first request with this Idempotency-Key was cut off by a stop of the gateway; look what it did, then use a new key',
    { field: headerNames.idempotencyKey },
  );
