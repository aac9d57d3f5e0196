import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { type Clock, isGatewayError } from '../../sdk/index.ts';
import { createKeyStore } from './store.ts';

/** A clock that stands until it is told. */
function stoppedClock(): Clock & { advance(ms: number): void } {
  let now = 1_000_000;
  const timers = new Set<{ at: number; callback: () => void }>();
  return {
    now: () => now,
    monotonic: () => now,
    schedule(delayMs, callback) {
      const timer = { at: now + delayMs, callback };
      timers.add(timer);
      return () => timers.delete(timer);
    },
    advance(ms) {
      now += ms;
      for (const timer of [...timers]) {
        if (timer.at > now) continue;
        timers.delete(timer);
        timer.callback();
      }
    },
  };
}

test('a key is known by its hash only: the database does not hold it', () => {
  const db = new DatabaseSync(':memory:');
  const clock = stoppedClock();
  const store = createKeyStore(db, { clock });
  const { key, id, prefix } = store.create('ci');
  assert.match(key, /^e2b_[0-9a-f]{40}$/);
  assert.equal(prefix, key.slice(0, 12));
  assert.deepEqual(store.verify(key), {
    ...{ id, name: 'ci' },
    limits: { ratePerSecond: null, requestsPerDay: null },
  });
  const dump = JSON.stringify(db.prepare('SELECT * FROM api_keys').all());
  assert.ok(!dump.includes(key.slice(12)));
});

test('near misses and other texts are not keys', () => {
  const store = createKeyStore(new DatabaseSync(':memory:'), { clock: stoppedClock() });
  const { key } = store.create('ci');
  const flipped = key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');
  for (const text of [
    flipped,
    key.toUpperCase(),
    `${key} `,
    key.slice(0, -1),
    '',
    'e2b_',
    `e2b_${'g'.repeat(40)}`,
  ]) {
    assert.equal(store.verify(text), null, text);
  }
});

test('a removed key stops working at once, and one removed by another process within the cache time', () => {
  const db = new DatabaseSync(':memory:');
  const clock = stoppedClock();
  const store = createKeyStore(db, { clock }, { cacheMs: 2000 });
  const other = createKeyStore(db, { clock });
  const [first, second] = [store.create('a'), store.create('b')];
  assert.ok(store.verify(first.key) && store.verify(second.key));
  store.remove(first.id);
  assert.equal(store.verify(first.key), null);
  other.remove(second.id);
  clock.advance(2000);
  assert.equal(store.verify(second.key), null);
  assert.throws(
    () => store.remove(second.id),
    (error) => isGatewayError(error, 'key_not_found'),
  );
});

test('uses reach the database some time later, and all of them when the store is disposed', () => {
  const db = new DatabaseSync(':memory:');
  const clock = stoppedClock();
  const stored = () => db.prepare('SELECT last_used_at FROM api_keys').get()?.last_used_at;
  {
    using store = createKeyStore(db, { clock }, { flushMs: 5000 });
    const { key } = store.create('a');
    store.verify(key);
    assert.equal(stored(), null);
    clock.advance(5000);
    assert.equal(stored(), 1_000_000);
    store.verify(key);
  }
  assert.equal(stored(), 1_005_000);
});

test('the first key is made once', () => {
  const store = createKeyStore(new DatabaseSync(':memory:'), { clock: stoppedClock() });
  const first = store.ensureFirstKey('first');
  assert.equal(store.verify(first?.key ?? '')?.name, 'first');
  assert.equal(store.ensureFirstKey('first'), null);
  assert.deepEqual(
    store.list().map(({ name, lastUsedAt }) => [name, lastUsedAt]),
    [['first', 1_000_000]],
  );
});

test('a key past its quota of the day or its rate is refused with the limit and the time to come back', () => {
  const db = new DatabaseSync(':memory:');
  const clock = stoppedClock();
  const store = createKeyStore(db, { clock });
  const spend = (name: string, limits: { ratePerSecond: number | null; requestsPerDay: number | null }) => {
    const identity = store.verify(store.create(name, limits).key);
    return () => store.spend(identity!);
  };
  const daily = spend('daily', { ratePerSecond: null, requestsPerDay: 2 });
  daily();
  daily();
  const secondsOfDay = Math.ceil((86_400_000 - (1_000_000 % 86_400_000)) / 1000);
  assert.throws(daily, (error: unknown) => {
    assert.ok(isGatewayError(error, 'quota_exceeded'));
    assert.deepEqual(error.details.extra, { limit: 2, used: 2, knob: 'key.limits.requestsPerDay' });
    assert.equal(error.details.retryAfterSeconds, secondsOfDay);
    return true;
  });
  clock.advance(86_400_000);
  daily();
  const fast = spend('fast', { ratePerSecond: 1, requestsPerDay: null });
  fast();
  assert.throws(fast, (error: unknown) => isGatewayError(error, 'rate_limited'));
  clock.advance(1_000);
  fast();
});

test('what a key used today outlives a restart, and a removed key leaves no count behind', () => {
  const db = new DatabaseSync(':memory:');
  const clock = stoppedClock();
  const limits = { ratePerSecond: null, requestsPerDay: 10 };
  const first = createKeyStore(db, { clock });
  const { id, key } = first.create('ci', limits);
  first.spend(first.verify(key)!);
  first[Symbol.dispose]();
  const second = createKeyStore(db, { clock });
  assert.equal(second.requestsToday(id), 1);
  assert.equal(second.list()[0]?.requestsToday, 1);
  second.remove(id);
  assert.equal(db.prepare('SELECT count(*) AS count FROM key_usage').get()?.count, 0);
});

test('a database of an earlier release gets the column of limits', () => {
  const db = new DatabaseSync(':memory:');
  db.exec(`CREATE TABLE api_keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE, created_at INTEGER NOT NULL, last_used_at INTEGER) STRICT`);
  const store = createKeyStore(db, { clock: stoppedClock() });
  assert.equal(store.verify(store.create('ci').key)?.limits.requestsPerDay, null);
});
