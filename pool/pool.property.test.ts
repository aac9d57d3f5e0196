/** Random interleavings of everything that can happen to a pool, against the rules that hold in all of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { GatewayError, type MachineId } from '../sdk/index.ts';
import type { FakeOperation } from './fake-source.ts';
import type { Lease } from './lease.ts';
import type { PoolOptions } from './options.ts';
import { createWorld, nothingLeft } from './test-world.ts';

type Action =
  | {
      readonly do: 'acquire';
      readonly session: string | undefined;
      readonly isExclusive: boolean;
      readonly deadlineMs: number | undefined;
    }
  | { readonly do: 'cancel'; readonly pick: number }
  | { readonly do: 'kill'; readonly pick: number }
  | { readonly do: 'release'; readonly pick: number; readonly isReusable: boolean }
  | { readonly do: 'advance'; readonly ms: number }
  | { readonly do: 'fail'; readonly operation: FakeOperation; readonly count: number }
  | { readonly do: 'shed'; readonly count: number };

const pick = fc.nat({ max: 1_000 });
const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('acquire' as const),
      session: fc.option(fc.constantFrom('a', 'b', 'c'), { nil: undefined }),
      isExclusive: fc.integer({ min: 0, max: 9 }).map((n) => n === 0),
      deadlineMs: fc.option(fc.integer({ min: 1, max: 500 }), { nil: undefined, freq: 6 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('release' as const), pick, isReusable: fc.boolean() }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('advance' as const),
      ms: fc.constantFrom(0, 1, 3, 20, 70, 400, 3_000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('cancel' as const), pick }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('kill' as const), pick }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('fail' as const),
      operation: fc.constantFrom('spawn' as const, 'restore' as const, 'wake' as const),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('shed' as const), count: fc.integer({ min: 1, max: 3 }) }),
  },
);

const scene = fc.record({
  sizes: fc.record({
    ready: fc.integer({ min: 0, max: 2 }),
    blank: fc.integer({ min: 0, max: 2 }),
    max: fc.integer({ min: 2, max: 5 }),
    reuse: fc.constantFrom('always' as const, 'never' as const, 'session' as const),
    concurrency: fc.integer({ min: 1, max: 3 }),
    maxInvocations: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
    followDemand: fc.boolean(),
  }),
  depth: fc.integer({ min: 0, max: 6 }),
  ignoresAbort: fc.boolean(),
  concurrentRestores: fc.integer({ min: 1, max: 4 }),
});
type Scene = typeof scene extends fc.Arbitrary<infer Value> ? Value : never;

interface Caller {
  readonly order: number;
  /** Callers of one class may be served by the same machines, so first-come holds among them. */
  readonly class: string;
  readonly controller: AbortController;
  outcome: Lease | GatewayError | null;
}

/** Drives one pool and checks the rules after each action. */
function createDriver({ sizes, depth, ignoresAbort, concurrentRestores }: Scene) {
  const pool: PoolOptions = {
    ...sizes,
    queue: { depth, timeoutMs: 1_000 },
    ttl: { idleMs: 2_000, lifetimeMs: 8_000 },
    restoreTimeoutMs: 5_000,
  };
  const failures: Record<FakeOperation, number> = { spawn: 0, restore: 0, wake: 0 };
  const world = createWorld({
    pool,
    concurrentRestores,
    source: {
      ignoresAbort,
      fail: (operation) => {
        if (failures[operation] === 0) return undefined;
        failures[operation] -= 1;
        return new Error(`scripted ${operation} failure`);
      },
    },
  });
  const callers: Caller[] = [];
  const tenants = new Map<MachineId, string>();
  const answers = new Map<MachineId, number>();
  const held: { readonly caller: Caller; readonly lease: Lease }[] = [];

  const broken: unknown[] = [];

  function granted(caller: Caller, lease: Lease): void {
    caller.outcome = lease;
    const earlier = callers.find(
      (other) => other.outcome === null && other.class === caller.class && other.order < caller.order,
    );
    assert.equal(earlier, undefined, 'a waiter was overtaken');
    const tenant = tenants.get(lease.machine.id);
    if (tenant !== undefined)
      assert.ok(tenant === caller.class && !tenant.startsWith('single'), 'a machine changed its tenant');
    tenants.set(lease.machine.id, caller.class);
    const answered = (answers.get(lease.machine.id) ?? 0) + 1;
    answers.set(lease.machine.id, answered);
    assert.ok(answered <= (pool.maxInvocations ?? answered), 'leased more often than maxInvocations');
    held.push({ caller, lease });
    const sharing = held.filter((other) => other.lease.machine.id === lease.machine.id).length;
    assert.ok(
      sharing <= (caller.class.startsWith('single') ? 1 : pool.concurrency),
      'leased above concurrency',
    );
  }

  function acquire(request: Extract<Action, { do: 'acquire' }>): void {
    const isSingle =
      request.isExclusive ||
      pool.reuse === 'never' ||
      (pool.reuse === 'session' && request.session === undefined);
    const kind = isSingle ? 'single' : pool.reuse === 'always' ? 'shared' : `session ${request.session}`;
    const controller = new AbortController();
    const caller: Caller = { order: callers.length, class: kind, controller, outcome: null };
    callers.push(caller);
    void world.pool
      .acquire({ ...request, signal: controller.signal })
      .then(
        (lease) => granted(caller, lease),
        (error: unknown) => {
          assert.ok(error instanceof GatewayError, String(error));
          caller.outcome = error;
        },
      )
      .catch((error: unknown) => void broken.push(error));
  }

  async function perform(step: Action): Promise<void> {
    if (step.do === 'acquire') acquire(step);
    else if (step.do === 'advance') await world.clock.advance(step.ms);
    else if (step.do === 'fail') failures[step.operation] += step.count;
    else if (step.do === 'shed') world.pool.shed(step.count, ['blank', 'ready', 'idle']);
    else if (step.do === 'cancel') callers[step.pick % callers.length]?.controller.abort();
    else if (step.do === 'kill') {
      const ids = [...world.source.held.keys()];
      if (ids.length > 0) world.source.kill(ids[step.pick % ids.length]!);
    } else if (held.length > 0) {
      const [{ lease }] = held.splice(step.pick % held.length, 1) as [(typeof held)[number]];
      lease.release(step.isReusable ? 'reusable' : 'discard', 'test');
      lease.release('reusable');
    }
    await world.clock.settle();
    check();
  }

  function check(): void {
    if (broken.length > 0) throw broken[0];
    const stats = world.pool.stats();
    assert.ok(stats.total <= pool.max, `${stats.total} machines over max ${pool.max}`);
    assert.ok(world.source.alive <= stats.total, 'a machine lives outside the pool');
    assert.equal(stats.leased, held.length);
    for (const { lease } of held)
      assert.ok(world.source.held.has(lease.machine.id), 'a leased machine was disposed of');
    assert.equal(stats.waiting, callers.filter((caller) => caller.outcome === null).length);
    assert.ok(
      stats.waiting - stats.total * pool.concurrency <= pool.queue.depth,
      'the queue is deeper than its bound',
    );
    assert.equal(stats.defects, 0);
    assert.deepEqual(world.source.violations, []);
  }

  /** Lets a healthy source recover, gives all leases back, and looks at what remains. */
  async function finish(): Promise<void> {
    for (const operation of ['spawn', 'restore', 'wake'] as const) failures[operation] = 0;
    for (let round = 0; round < 40; round += 1) {
      await perform({ do: 'advance', ms: 3_000 });
      while (held.length > 0) await perform({ do: 'release', pick: 0, isReusable: true });
    }
    assert.deepEqual(
      callers.filter((caller) => caller.outcome === null),
      [],
      'a waiter was lost',
    );
    await perform({ do: 'advance', ms: 400_000 });
    const { machines } = world.pool.stats();
    assert.equal(machines.ready, pool.ready, 'the floor of ready machines was not restored');
    assert.equal(machines.blank, Math.min(pool.blank, pool.max - pool.ready), 'nor that of blanks');
    assert.equal(world.pool.size, machines.ready + machines.blank, 'the surplus was not given back');
    assert.equal(world.restores.stats().inUse, 0);
  }
  return { perform, finish, end: world.end };
}

const parameters = {
  seed: 20_250_611,
  numRuns: 250,
};

test('in every interleaving bounds hold, nobody is overtaken or lost, and the floor comes back', async () => {
  const property = fc.asyncProperty(
    scene,
    fc.array(action, { minLength: 5, maxLength: 60 }),
    async (chosen, actions) => {
      const driver = createDriver(chosen);
      for (const step of actions) await driver.perform(step);
      await driver.finish();
      assert.deepEqual(await driver.end(), nothingLeft);
    },
  );
  await fc.assert(property, parameters);
});

test('disposed of in the middle of anything, a pool leaves no machine, timer or permit', async () => {
  const property = fc.asyncProperty(
    scene,
    fc.array(action, { minLength: 1, maxLength: 40 }),
    async (chosen, actions) => {
      const driver = createDriver(chosen);
      for (const step of actions) await driver.perform(step);
      assert.deepEqual(await driver.end(), nothingLeft);
    },
  );
  await fc.assert(property, parameters);
});
