import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../sdk/index.ts';
import { createFakeSource, type FakeSource, fakeDigest } from './fake-source.ts';
import type { PoolOptions } from './options.ts';
import { createPools, type PoolsDeps } from './pool-set.ts';
import { plainOptions } from './test-world.ts';
import { createVirtualClock } from './virtual-clock.ts';

function createNode(maxMachines: number, deps: Partial<PoolsDeps> = {}) {
  const clock = createVirtualClock();
  const pools = createPools({ clock, random: () => 0.5, ...deps }, { maxMachines, concurrentRestores: 4 });
  const sources: FakeSource[] = [];
  const version = (digit: string, options: Partial<PoolOptions> = {}) => {
    const source = createFakeSource({ clock }, { digest: fakeDigest(digit) });
    sources.push(source);
    return { source, options: { ...plainOptions, ready: 1, blank: 1, ...options } };
  };
  async function end() {
    const done = pools.dispose();
    await clock.advance(1_000);
    const { leftBehind } = await done;
    return {
      leftBehind,
      alive: sources.reduce((sum, source) => sum + source.alive, 0),
      timers: clock.pending,
    };
  }
  return { clock, pools, version, end };
}

const nothing = { leftBehind: 0, alive: 0, timers: 0 };

test('a version has one pool, however often it is asked for', async () => {
  const { pools, version, end } = createNode(10);
  const a = version('a');
  assert.equal(pools.getOrCreate(a), pools.getOrCreate(a));
  assert.equal(pools.get(a.source.digest), pools.getOrCreate(a));
  assert.equal(pools.get(fakeDigest('b')), undefined);
  assert.deepEqual(await end(), nothing);
});

test('reconciling makes what is missing, updates what is there and drains what is absent', async () => {
  const { clock, pools, version, end } = createNode(20);
  const [a, b, c] = [version('a'), version('b'), version('c')];
  pools.setServing([a, b]);
  await clock.advance(1_000);
  const old = pools.get(a.source.digest)!;
  let lease: Awaited<ReturnType<typeof old.acquire>> | undefined;
  void old.acquire().then((granted) => {
    lease = granted;
  });
  await clock.advance(2);
  pools.setServing([{ ...b, options: { ...b.options, ready: 2 } }, c]);
  assert.equal(pools.get(a.source.digest), undefined);
  await assert.rejects(old.acquire(), { code: 'draining' });
  await clock.advance(1_000);
  assert.equal(pools.get(b.source.digest)?.stats().machines.ready, 2);
  assert.equal(pools.get(c.source.digest)?.stats().machines.ready, 1);
  assert.equal(old.size, 1, 'the leased machine finishes');
  assert.equal(pools.stats().pools.length, 3);
  pools.setServing([a, b, c]);
  assert.notEqual(pools.get(a.source.digest), old, 'a version that comes back gets a new pool');
  lease!.release('reusable');
  await clock.advance(1_000);
  assert.equal(old.size, 0);
  assert.equal(pools.stats().pools.length, 3);
  assert.deepEqual(await end(), nothing);
});

test('the node never holds more machines than its budget, and refill is what gives way', async () => {
  const { clock, pools, version, end } = createNode(3);
  pools.setServing([version('a'), version('b', { ready: 2, blank: 2 })]);
  await clock.advance(5_000);
  assert.equal(pools.size, 3);
  assert.deepEqual(await end(), nothing);
});

test('an invocation on a full node gets the place of an idle machine elsewhere, blanks first', async () => {
  const { clock, pools, version, end } = createNode(3);
  const [a, b] = [version('a', { ready: 1, blank: 2 }), version('b', { ready: 0, blank: 0 })];
  pools.setServing([a, b]);
  await clock.advance(1_000);
  assert.equal(pools.size, 3);
  const leases: unknown[] = [];
  const pool = pools.get(b.source.digest)!;
  void pool.acquire().then((lease) => leases.push(lease));
  await clock.advance(5 + 80);
  assert.equal(leases.length, 1);
  assert.equal(pools.get(a.source.digest)?.stats().discards.shed, 1, 'no more than was needed');
  assert.equal(pools.get(a.source.digest)?.stats().machines.ready, 1);
  assert.equal(pools.size, 3);
  assert.deepEqual(await end(), nothing);
});

test('a node with nothing to give up refuses at once, with the knob to turn and a time to come back', async () => {
  const { clock, pools, version, end } = createNode(1);
  const [a, b] = [version('a', { ready: 1, blank: 0 }), version('b', { ready: 0, blank: 0 })];
  pools.setServing([a, b]);
  await clock.advance(1_000);
  void pools.get(a.source.digest)!.acquire();
  await clock.advance(2);
  await assert.rejects(pools.get(b.source.digest)!.acquire(), (error) => {
    assert.ok(error instanceof GatewayError && error.code === 'node_at_capacity');
    assert.deepEqual(error.details.extra, { limit: 1, used: 1, knob: 'maxMachines' });
    assert.ok(Number.isInteger(error.details.retryAfterSeconds));
    return true;
  });
  assert.deepEqual(await end(), nothing);
});

test('who waits for a place on the node gets it when another pool gives one back', async () => {
  const { clock, pools, version, end } = createNode(2);
  const [a, b] = [version('a', { ready: 1, blank: 0, reuse: 'never' }), version('b', { ready: 0, blank: 0 })];
  pools.setServing([a]);
  await clock.advance(1_000);
  pools.setServing([a, b]);
  const first = pools.get(a.source.digest)!.acquire();
  await clock.advance(2);
  const held = await first;
  const second = pools.get(a.source.digest)!.acquire();
  await clock.advance(400);
  await second;
  assert.equal(pools.size, 2);
  let isServed = false;
  const pool = pools.get(b.source.digest)!;
  await assert.rejects(pool.acquire(), { code: 'node_at_capacity' });
  held.release('reusable');
  void pool.acquire().then(() => {
    isServed = true;
  });
  await clock.advance(90);
  assert.equal(isServed, true);
  assert.equal(pools.size, 2);
  assert.deepEqual(await end(), nothing);
});

test('machines outside the pools and the further say of the node count too', async () => {
  let others = 2;
  let isAdmitted = false;
  const refused = { kind: 'refused', error: new GatewayError('node_at_capacity', 'no memory') } as const;
  const { clock, pools, version, end } = createNode(3, {
    otherMachines: () => others,
    admit: () => (isAdmitted ? { kind: 'granted' } : refused),
  });
  const a = version('a', { ready: 2, blank: 0 });
  pools.setServing([a]);
  await assert.rejects(pools.get(a.source.digest)!.acquire(), {
    code: 'node_at_capacity',
    message: 'no memory',
  });
  assert.equal(pools.size, 0);
  isAdmitted = true;
  await clock.advance(3_000);
  assert.equal(pools.size, 1);
  others = 0;
  await clock.advance(3_000);
  assert.equal(pools.size, 2);
  assert.deepEqual(await end(), nothing);
});

test('pressure is met across pools: all blanks before any ready machine', async () => {
  const { clock, pools, version, end } = createNode(20);
  pools.setServing([version('a', { ready: 1, blank: 2 }), version('b', { ready: 1, blank: 1 })]);
  await clock.advance(1_000);
  assert.equal(pools.shed(9), 3);
  await clock.advance(100);
  assert.deepEqual(
    pools.stats().pools.map(({ machines }) => [machines.ready, machines.blank]),
    [
      [1, 0],
      [1, 0],
    ],
  );
  assert.deepEqual(await end(), nothing);
});

test('a place that becomes free goes to an invocation, not to the refill of a pool that waited once', async () => {
  const { clock, pools, version, end } = createNode(1);
  const [a, b, c] = [
    version('a', { ready: 1, blank: 0 }),
    version('b', { ready: 0, blank: 0 }),
    version('c'),
  ];
  pools.setServing([a, b, c]);
  await clock.advance(1_000);
  const [first, second, third] = [a, b, c].map(({ source }) => pools.get(source.digest)!);
  const taken = first!.acquire();
  await clock.advance(2);
  const held = await taken;
  await assert.rejects(third!.acquire(), { code: 'node_at_capacity' });
  held.release('discard', 'test');
  let isServed = false;
  void second!.acquire().then(() => {
    isServed = true;
  });
  await clock.advance(5 + 80);
  assert.equal(isServed, true);
  assert.deepEqual(await end(), nothing);
});

test('a version without any machine gets the place of a ready one at its floor, rather than never being served', async () => {
  const { clock, pools, version, end } = createNode(1);
  const [a, b] = [version('a', { ready: 1, blank: 0 }), version('b', { ready: 1, blank: 0 })];
  pools.setServing([a, b]);
  await clock.advance(1_000);
  let isServed = false;
  void pools
    .get(b.source.digest)!
    .acquire()
    .then(() => {
      isServed = true;
    });
  await clock.advance(5 + 80);
  assert.equal(isServed, true);
  assert.deepEqual(await end(), nothing);
});

test('a node that stops makes no new pools and runs dry', async () => {
  const { clock, pools, version, end } = createNode(20);
  pools.setServing([version('a'), version('b')]);
  await clock.advance(1_000);
  let isDry = false;
  const drained = pools.drainAll().then(() => {
    isDry = true;
  });
  assert.throws(() => pools.getOrCreate(version('c')), { code: 'draining' });
  await clock.advance(100);
  await drained;
  assert.deepEqual([isDry, pools.size], [true, 0]);
  assert.deepEqual(await end(), nothing);
});
