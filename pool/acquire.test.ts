import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError, isGatewayError } from '../sdk/index.ts';
import type { FakeOperation } from './fake-source.ts';
import type { Lease } from './lease.ts';
import type { AcquireRequest } from './reception.ts';
import { createWorld, nothingLeft, type WorldOptions } from './test-world.ts';

/** A world whose pool has reached its floor, with a shorthand for an acquire that takes `ms`. */
async function filled(options: WorldOptions) {
  const world = createWorld(options);
  await world.clock.advance(3_000);
  const take = async (ms: number, request: AcquireRequest = {}): Promise<Lease> => {
    let lease: Lease | undefined;
    const taken = world.pool.acquire(request).then((granted) => {
      lease = granted;
    });
    await world.clock.advance(ms);
    assert.ok(lease !== undefined, `no machine within ${ms} ms`);
    await taken;
    return lease;
  };
  return { ...world, take };
}

/** Fails the next operations named, in order of their ends. */
const failing = (...operations: FakeOperation[]) => ({
  fail: (operation: FakeOperation) => {
    const index = operations.indexOf(operation);
    if (index < 0) return undefined;
    operations.splice(index, 1);
    return new Error(`scripted ${operation} failure`);
  },
});

test('the order of ways is a reused machine, a ready one, a blank, a new VMM, and each names itself', async () => {
  const { take, end } = await filled({ pool: { ready: 1, blank: 1, max: 3 } });
  const ready = await take(2);
  assert.deepEqual([ready.start, ready.queueMs, ready.restoreMs], ['ready', 0, 2]);
  const restored = await take(20);
  assert.deepEqual([restored.start, restored.queueMs, restored.restoreMs], ['restored', 0, 20]);
  // Refill has been starting a VMM since the ready machine was taken, 22 ms ago.
  const spawned = await take(58);
  assert.deepEqual([spawned.start, spawned.queueMs, spawned.restoreMs], ['spawned', 0, 58]);
  ready.release('reusable');
  const reused = await take(0);
  assert.deepEqual([reused.start, reused.restoreMs, reused.machine], ['reused', 0, ready.machine]);
  assert.deepEqual(await end(), nothingLeft);
});

test('a waiter is served by whichever machine is free first, not by the one started for it', async () => {
  const { clock, pool, take, end } = await filled({ pool: { ready: 1, blank: 0, max: 2 } });
  const first = await take(2);
  const waiting = pool.acquire();
  await clock.advance(10);
  first.release('reusable');
  const second = await waiting;
  assert.deepEqual([second.start, second.queueMs, second.machine], ['reused', 10, first.machine]);
  assert.deepEqual(await end(), nothingLeft);
});

test('waiters are served first-come, and one that is cancelled leaves at once without a trace', async () => {
  const { clock, pool, take, end } = await filled({ pool: { ready: 1, blank: 0, max: 1 } });
  const held = await take(2);
  const order: string[] = [];
  const enter = (name: string, signal?: AbortSignal) =>
    pool.acquire({ signal }).then((lease) => {
      order.push(name);
      lease.release('reusable');
    });
  const controller = new AbortController();
  const waiting = [enter('first'), enter('second', controller.signal), enter('third')];
  const cancelled = assert.rejects(waiting[1]!, { code: 'cancelled' });
  controller.abort();
  await cancelled;
  assert.equal(pool.stats().waiting, 2);
  held.release('reusable');
  await clock.settle();
  assert.deepEqual(order, ['first', 'third']);
  assert.equal(pool.stats().refusals.cancelled, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('an acquire with an aborted signal is refused before it costs anything', async () => {
  const { pool, end } = await filled({ pool: { ready: 0, blank: 0 } });
  await assert.rejects(pool.acquire({ signal: AbortSignal.abort() }), { code: 'cancelled' });
  assert.equal(pool.size, 0);
  assert.deepEqual(await end(), nothingLeft);
});

test('a full queue refuses with a time to come back, computed from the line and the measured service time', async () => {
  const { clock, pool, take, end } = await filled({
    pool: { ready: 1, blank: 0, max: 1, queue: { depth: 2, timeoutMs: 60_000 } },
  });
  const measured = await take(2);
  await clock.advance(4_000);
  measured.release('reusable');
  const held = await take(0);
  const waiting = Promise.all(
    [pool.acquire(), pool.acquire()].map((promise) => promise.then((lease) => lease.release('reusable'))),
  );
  await assert.rejects(pool.acquire(), (error) => {
    assert.ok(isGatewayError(error, 'queue_full'));
    assert.deepEqual(error.details.extra, { limit: 2, used: 2, knob: 'admission.queue.depth' });
    // One in service and two in line, 4 s each.
    assert.equal(error.details.retryAfterSeconds, 12);
    return true;
  });
  held.release('reusable');
  await waiting;
  assert.deepEqual(await end(), nothingLeft);
});

test('with a queue of depth 0 an acquire is still served when a machine can be made for it', async () => {
  const { pool, take, end } = await filled({
    pool: { ready: 0, blank: 0, max: 1, queue: { depth: 0, timeoutMs: 10 } },
  });
  const lease = await take(80);
  assert.equal(lease.start, 'spawned');
  await assert.rejects(pool.acquire(), { code: 'queue_full' });
  lease.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('a waiter without a machine on its way is refused when its queue time is over', async () => {
  const { clock, pool, take, end } = await filled({
    pool: { ready: 1, blank: 0, max: 1, queue: { depth: 9, timeoutMs: 500 } },
  });
  const lease = await take(2);
  const refused = assert.rejects(pool.acquire(), { code: 'queue_timeout' });
  await clock.advance(499);
  assert.equal(pool.stats().waiting, 1);
  await clock.advance(1);
  await refused;
  assert.equal(pool.stats().waiting, 0);
  lease.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('a restore that has begun is not cut short by the queue time, but by its own budget and the caller deadline', async () => {
  const pool = { ready: 0, blank: 0, max: 2, queue: { depth: 9, timeoutMs: 50 }, restoreTimeoutMs: 70 };
  const patient = await filled({ pool, source: { spawnMs: 60, restoreMs: 20 } });
  assert.equal((await patient.take(80)).start, 'spawned');
  assert.deepEqual(await patient.end(), nothingLeft);

  const slow = await filled({ pool, source: { spawnMs: 60, restoreMs: 90 } });
  const overBudget = assert.rejects(slow.pool.acquire(), { code: 'restore_timeout' });
  await slow.clock.advance(60 + 70);
  await overBudget;
  const overDeadline = assert.rejects(slow.pool.acquire({ deadlineMs: 40 }), { code: 'restore_timeout' });
  await slow.clock.advance(40);
  await overDeadline;
  assert.deepEqual(await slow.end(), nothingLeft);
});

test('time in line for a restore permit is queue time', async () => {
  const { clock, pool, restores, end } = createWorld({
    pool: { ready: 0, blank: 0, queue: { depth: 9, timeoutMs: 50 } },
    concurrentRestores: 1,
  });
  let release = () => {};
  restores.request('live', (free) => {
    release = free;
  });
  const late = assert.rejects(pool.acquire(), { code: 'queue_timeout' });
  await clock.advance(50);
  await late;
  const expired = assert.rejects(pool.acquire({ deadlineMs: 20 }), { code: 'queue_timeout' });
  await clock.advance(20);
  await expired;
  let timing: readonly number[] = [];
  void pool.acquire().then(({ queueMs, restoreMs }) => {
    timing = [queueMs, restoreMs];
  });
  await clock.advance(40);
  release();
  await clock.advance(80);
  assert.deepEqual(timing, [40, 80]);
  assert.deepEqual(await end(), nothingLeft);
});

test('a wake that fails costs only time: the next way is tried, and the machine is discarded', async () => {
  const { pool, take, end } = await filled({ pool: { ready: 1, blank: 1, max: 3 }, source: failing('wake') });
  const lease = await take(2 + 20);
  assert.deepEqual([lease.start, lease.queueMs, lease.restoreMs], ['restored', 2, 20]);
  assert.equal(pool.stats().discards.wake_failed, 1);
  assert.equal(pool.stats().lastFailure?.message, 'scripted wake failure');
  lease.release('reusable');
  assert.deepEqual(await end(), nothingLeft);
});

test('a failing wake harms nobody but the one it was for', async () => {
  const { clock, pool, end } = await filled({
    pool: { ready: 2, blank: 0, max: 3 },
    source: failing('wake'),
  });
  const [unlucky, lucky] = [pool.acquire(), pool.acquire()];
  await clock.advance(2);
  const lease = await unlucky;
  assert.equal(lease.start, 'ready', 'the one who came first got the machine that woke');
  await clock.advance(100);
  assert.equal((await lucky).start, 'spawned');
  assert.deepEqual(await end(), nothingLeft);
});

test('after three failures a waiter is refused with the cause', async () => {
  const fail = () => new Error('no VMM binary');
  const { clock, pool, end } = createWorld({ pool: { ready: 0, blank: 0, max: 3 }, source: { fail } });
  const refused = assert.rejects(pool.acquire(), (error) => {
    assert.ok(isGatewayError(error, 'restore_failed'));
    assert.match(error.message, /3 tries/);
    assert.equal((error.details.cause as Error).message, 'no VMM binary');
    return true;
  });
  await clock.advance(3 * 60);
  await refused;
  assert.equal(pool.stats().failures.spawn, 3);
  assert.deepEqual(await end(), nothingLeft);
});

test('a failure that another try cannot mend is not tried again', async () => {
  const corrupt = new GatewayError('snapshot_corrupt', 'checksum mismatch');
  const { clock, pool, end } = createWorld({ pool: { ready: 0, blank: 0 }, source: { fail: () => corrupt } });
  const refused = assert.rejects(pool.acquire(), { code: 'restore_failed', cause: corrupt });
  await clock.advance(60);
  await refused;
  assert.equal(pool.stats().failures.spawn, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('a waiter moves from a VMM that is still starting to a machine that became ready meanwhile', async () => {
  const { clock, pool, end } = await filled({
    pool: { ready: 1, blank: 0, max: 3 },
    source: { spawnMs: 1_000 },
  });
  const first = pool.acquire();
  await clock.advance(2);
  await first;
  await clock.advance(900);
  const waiting = pool.acquire();
  await clock.advance(100 + 320 + 2);
  assert.equal((await waiting).queueMs < 200, true);
  assert.deepEqual(await end(), nothingLeft);
});

test('an acquire that joins a refill in line for its permit gets the machine awake', async () => {
  const { clock, pool, restores, end } = createWorld({ pool: { ready: 1, blank: 0 }, concurrentRestores: 2 });
  await clock.advance(50);
  // Takes the only permit that refill may have, right when the refill asks for its second.
  let release = () => {};
  restores.request('refill', (free) => {
    release = free;
  });
  await clock.advance(10);
  let start: string | undefined;
  void pool.acquire().then((lease) => {
    start = lease.start;
  });
  await clock.advance(20);
  assert.equal(start, 'restored');
  release();
  assert.deepEqual(await end(), nothingLeft);
});

test('a lease left to `await using` discards its machine, and its release counts once', async () => {
  const { pool, take, end } = await filled({ pool: { ready: 1, blank: 0, max: 2 } });
  {
    await using lease = await take(2);
    assert.equal(pool.stats().leased, 1);
    void lease;
  }
  assert.equal(pool.stats().leased, 0);
  assert.equal(pool.stats().discards.dropped, 1);
  {
    await using lease = await take(400);
    lease.release('reusable');
    lease.release('discard', 'twice');
  }
  assert.equal(pool.stats().discards.twice, undefined);
  assert.equal(pool.stats().discards.dropped, 1);
  assert.deepEqual(await end(), nothingLeft);
});
