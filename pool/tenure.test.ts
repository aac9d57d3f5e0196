import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Lease } from './lease.ts';
import type { AcquireRequest } from './reception.ts';
import { jittered } from './tenure.ts';
import { createWorld, nothingLeft, type WorldOptions } from './test-world.ts';

async function filled(pool: WorldOptions['pool'] = {}) {
  const world = createWorld({ pool: { ready: 1, blank: 0, ...pool } });
  await world.clock.advance(3_000);
  const take = async (request: AcquireRequest = {}): Promise<Lease> => {
    let lease: Lease | undefined;
    void world.pool.acquire(request).then((granted) => {
      lease = granted;
    });
    await world.clock.advance(400);
    assert.ok(lease !== undefined, 'no machine within 400 ms');
    return lease;
  };
  return { ...world, take };
}

test('with reuse always a machine serves again and again until it has been idle for its TTL', async () => {
  const { clock, pool, take, end } = await filled({ ttl: { idleMs: 1_000, lifetimeMs: 100_000 } });
  const first = await take();
  first.release('reusable');
  await clock.advance(900);
  const second = await take();
  assert.equal(second.machine, first.machine);
  await clock.advance(5_000);
  assert.equal(pool.stats().discards.idle, undefined, 'in flight it is never idle');
  second.release('reusable');
  await clock.advance(999);
  assert.equal(pool.stats().discards.idle, undefined);
  await clock.advance(1);
  assert.equal(pool.stats().discards.idle, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('a machine older than its lifetime goes when its last invocation has ended, and takes no new one before', async () => {
  const { clock, pool, take, end } = await filled({
    ttl: { idleMs: 50_000, lifetimeMs: 2_000 },
    concurrency: 2,
  });
  const old = await take();
  await clock.advance(2_000);
  const fresh = await take();
  assert.notEqual(fresh.machine, old.machine);
  assert.equal(pool.stats().discards.lifetime, undefined);
  old.release('reusable');
  assert.equal(pool.stats().discards.lifetime, 1);
  fresh.release('reusable');
  await clock.advance(2_000);
  assert.equal(pool.stats().discards.lifetime, 2, 'an idle one goes at once');
  assert.deepEqual(await end(), nothingLeft);
});

test('a machine is discarded after its last permitted invocation', async () => {
  const { pool, take, end } = await filled({ maxInvocations: 2, concurrency: 4 });
  const [first, second] = [await take(), await take()];
  assert.equal(first.machine, second.machine);
  const third = await take();
  assert.notEqual(third.machine, first.machine);
  first.release('reusable');
  assert.equal(pool.stats().discards.max_invocations, undefined);
  second.release('reusable');
  assert.equal(pool.stats().discards.max_invocations, 1);
  third.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('with reuse never a machine answers one invocation, whatever the concurrency says', async () => {
  const { pool, take, end } = await filled({ reuse: 'never', concurrency: 5 });
  const [first, second] = [await take(), await take()];
  assert.notEqual(first.machine, second.machine);
  first.release('reusable');
  second.release('reusable');
  assert.equal(pool.stats().discards.used, 2);
  assert.deepEqual(await end(), nothingLeft);
});

test('a machine answers as many invocations at once as the template allows, and the next needs another', async () => {
  const { take, end } = await filled({ concurrency: 2 });
  const [first, second, third] = [await take(), await take(), await take()];
  assert.equal(first.machine, second.machine);
  assert.notEqual(third.machine, first.machine);
  assert.equal(second.start, 'reused');
  for (const lease of [first, second, third]) lease.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('callers who waited for the same restore all say so, up to the concurrency of the machine', async () => {
  const { clock, pool, end } = await filled({ ready: 0, concurrency: 3 });
  const leases = Promise.all([pool.acquire(), pool.acquire(), pool.acquire()]);
  await clock.advance(80);
  assert.deepEqual(
    (await leases).map(({ start, restoreMs }) => [start, restoreMs]),
    Array(3).fill(['spawned', 80]),
  );
  assert.equal(pool.stats().spawns, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('callers who come at once share the machine that is waking, and have no other made', async () => {
  const { clock, pool, end } = await filled({ concurrency: 3, max: 9 });
  const leases = Promise.all([pool.acquire(), pool.acquire(), pool.acquire()]);
  await clock.advance(2);
  assert.deepEqual(new Set((await leases).map(({ machine }) => machine.id)).size, 1);
  await clock.advance(1_000);
  assert.equal(pool.stats().spawns, 2, 'the first, and the refill for it');
  assert.deepEqual(await end(), nothingLeft);
});

test('a discard ends a shared machine for all who would come, and for none who are in it', async () => {
  const { pool, source, take, end } = await filled({ concurrency: 2 });
  const [first, second] = [await take(), await take()];
  first.release('discard', 'crashed');
  assert.ok(source.held.has(second.machine.id));
  const third = await take();
  assert.notEqual(third.machine, second.machine);
  second.release('reusable');
  assert.equal(pool.stats().discards.crashed, 1);
  third.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('a session keeps its machine, shares it with no other, and loses it when it idles out', async () => {
  const { clock, pool, take, end } = await filled({
    reuse: 'session',
    ttl: { idleMs: 5_000, lifetimeMs: 900_000 },
  });
  const a = await take({ session: 'a' });
  a.release('reusable');
  const b = await take({ session: 'b' });
  assert.notEqual(b.machine, a.machine);
  b.release('reusable');
  const again = await take({ session: 'a' });
  assert.deepEqual([again.machine, again.start], [a.machine, 'reused']);
  again.release('reusable');
  await clock.advance(5_000);
  assert.equal(pool.stats().discards.idle, 2);
  const later = await take({ session: 'a' });
  assert.notEqual(later.machine, a.machine);
  later.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('two first calls of one session wait for one machine, not for two', async () => {
  const { clock, pool, end } = await filled({ reuse: 'session', ready: 0 });
  const [first, second] = [pool.acquire({ session: 'a' }), pool.acquire({ session: 'a' })];
  await clock.advance(100);
  const lease = await first;
  assert.equal(pool.stats().waiting, 1);
  assert.equal(pool.stats().spawns, 1);
  lease.release('reusable');
  assert.equal((await second).machine, lease.machine);
  assert.deepEqual(await end(), nothingLeft);
});

test('without a session key, reuse session means once', async () => {
  const { pool, take, end } = await filled({ reuse: 'session' });
  const lease = await take();
  lease.release('reusable');
  assert.equal(pool.stats().discards.used, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('an exclusive lease gets a fresh machine of its own, making room for it at max, and uses it up', async () => {
  const { pool, take, end } = await filled({ max: 1, concurrency: 5 });
  const shared = await take();
  shared.release('reusable');
  const sandbox = await take({ isExclusive: true });
  assert.notEqual(sandbox.machine, shared.machine);
  assert.equal(pool.stats().discards.evicted, 1);
  sandbox.release('reusable');
  assert.equal(pool.stats().discards.used, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('a machine brought up for somebody who left counts as ready for the one who comes later', async () => {
  const { clock, pool, take, end } = await filled({ ready: 0 });
  const controller = new AbortController();
  const cancelled = assert.rejects(pool.acquire({ signal: controller.signal }), { code: 'cancelled' });
  await clock.advance(70);
  controller.abort();
  await cancelled;
  await clock.advance(100);
  const lease = await take();
  assert.deepEqual([lease.start, lease.queueMs, lease.restoreMs], ['ready', 0, 0]);
  assert.deepEqual(await end(), nothingLeft);
});

test('a machine that ends while leased says so to its holder and goes on release; an idle one is replaced', async () => {
  const { clock, pool, source, take, end } = await filled({ concurrency: 2 });
  const lease = await take();
  source.kill(lease.machine.id);
  assert.deepEqual(await lease.gone, { reason: 'killed' });
  const next = await take();
  assert.notEqual(next.machine, lease.machine, 'nobody is sent to a dead machine');
  lease.release('reusable');
  assert.equal(pool.stats().discards.gone, 1);
  next.release('reusable');
  source.kill(next.machine.id);
  await clock.settle();
  const [parked] = [...source.held.keys()];
  source.kill(parked!);
  await clock.advance(10_000);
  assert.equal(pool.stats().failures.gone, 2);
  assert.equal(pool.stats().machines.ready, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('TTLs are spread by ten percent to either side', () => {
  assert.equal(
    jittered(1_000, () => 0),
    900,
  );
  assert.equal(
    jittered(1_000, () => 0.5),
    1_000,
  );
  assert.equal(Math.round(jittered(1_000, () => 0.999_999)), 1_100);
});
