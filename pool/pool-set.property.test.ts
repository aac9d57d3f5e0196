/** Random demand on several pools that share a node too small for them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isGatewayError } from '../sdk/index.ts';
import { createFakeSource, fakeDigest } from './fake-source.ts';
import type { Lease } from './lease.ts';
import { createPools } from './pool-set.ts';
import { plainOptions } from './test-world.ts';
import { createVirtualClock } from './virtual-clock.ts';

type Step =
  | { readonly do: 'acquire'; readonly pool: number }
  | { readonly do: 'release'; readonly pick: number }
  | { readonly do: 'advance'; readonly ms: number }
  | { readonly do: 'serve'; readonly pools: readonly boolean[] };

const digits = ['a', 'b', 'c'] as const;

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('acquire' as const), pool: fc.nat({ max: 2 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('release' as const), pick: fc.nat({ max: 99 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('advance' as const), ms: fc.constantFrom(0, 2, 30, 90, 400) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('serve' as const),
      pools: fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }),
    }),
  },
);

const node = fc.record({
  maxMachines: fc.integer({ min: 1, max: 6 }),
  concurrentRestores: fc.integer({ min: 1, max: 3 }),
  ready: fc.nat({ max: 2 }),
  blank: fc.nat({ max: 1 }),
  reuse: fc.constantFrom('always' as const, 'never' as const),
});

test('under any demand a node stays within its budget, loses nobody, and serves every pool again afterwards', async () => {
  const property = fc.asyncProperty(node, fc.array(step, { maxLength: 50 }), async (sizes, steps) => {
    const { maxMachines, concurrentRestores, ready, blank, reuse } = sizes;
    const clock = createVirtualClock();
    const pools = createPools({ clock, random: () => 0.5 }, { maxMachines, concurrentRestores });
    const options = {
      ...plainOptions,
      ready,
      blank,
      reuse,
      max: 4,
      ttl: { idleMs: 2_000, lifetimeMs: 9_000 },
    };
    const versions = digits.map((digit) => ({
      source: createFakeSource({ clock }, { digest: fakeDigest(digit) }),
      options,
    }));
    const held: Lease[] = [];
    let unsettled = 0;
    const unexpected: unknown[] = [];

    const acquire = (index: number) => {
      const pool = pools.get(versions[index]!.source.digest);
      if (pool === undefined) return;
      unsettled += 1;
      void pool
        .acquire()
        .then(
          (lease) => held.push(lease),
          (error: unknown) => {
            if (!isGatewayError(error, 'node_at_capacity', 'queue_full', 'queue_timeout'))
              unexpected.push(error);
          },
        )
        .finally(() => {
          unsettled -= 1;
        });
    };
    const check = () => {
      assert.deepEqual(unexpected, []);
      const alive = versions.reduce((sum, { source }) => sum + source.alive, 0);
      assert.ok(
        pools.size <= maxMachines && alive <= pools.size,
        `${alive} alive, ${pools.size} of ${maxMachines}`,
      );
    };

    pools.setServing(versions);
    for (const action of steps) {
      if (action.do === 'acquire') acquire(action.pool);
      else if (action.do === 'advance') await clock.advance(action.ms);
      else if (action.do === 'serve') pools.setServing(versions.filter((_, index) => action.pools[index]));
      else if (held.length > 0) held.splice(action.pick % held.length, 1)[0]!.release('reusable');
      await clock.settle();
      check();
    }
    pools.setServing(versions);
    for (let round = 0; unsettled > 0 || held.length > 0; round += 1) {
      assert.ok(round < 40, `${unsettled} waiters lost`);
      for (const lease of held.splice(0)) lease.release('reusable');
      await clock.advance(500);
      check();
    }
    await clock.advance(20_000);
    for (const index of versions.keys()) {
      const before = held.length;
      acquire(index);
      await clock.advance(600);
      assert.equal(held.length, before + 1, 'a pool is not served, though the node is idle');
      held.pop()!.release('reusable');
      await clock.advance(10);
    }
    const done = pools.dispose();
    await clock.advance(1_000);
    assert.deepEqual(await done, { leftBehind: 0 });
    check();
    assert.equal(clock.pending, 0);
    assert.equal(pools.restores.stats().inUse, 0);
    assert.deepEqual(
      versions.flatMap(({ source }) => source.violations),
      [],
    );
  });
  await fc.assert(property, { seed: 20_250_612, numRuns: 150 });
});
