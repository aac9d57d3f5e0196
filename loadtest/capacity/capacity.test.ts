import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Durations } from '../record/histogram.ts';
import { sampleResult } from '../testing/sample-result.ts';
import { findCapacity, type Probe } from './bisect.ts';
import { judgeProbe } from './judge.ts';
import { demandOf, planNodes } from './plan-nodes.ts';
import type { PoolSimulator, SimulatedArrival, SimulatedNode } from './simulator-port.ts';

const search = (over = {}) => ({
  fromPerSecond: 10,
  toPerSecond: 10_000,
  precision: 0.05,
  maxProbes: 40,
  signal: new AbortController().signal,
  ...over,
});
const probeAt = (ratePerSecond: number, isSustained: boolean): Probe => ({
  ratePerSecond,
  isSustained,
  reasons: [],
  p99Ms: 1,
  limitedBy: isSustained ? '' : 'the function itself (exec)',
});

describe('the search for the highest rate', () => {
  test('ends within its precision below any true limit, confirmed, and says what limited it', async () => {
    await fc.assert(
      fc.asyncProperty(fc.double({ min: 11, max: 9_000, noNaN: true }), async (limit) => {
        const found = await findCapacity(async (rate) => probeAt(rate, rate <= limit), search());
        assert.ok(found.isConfirmed);
        assert.ok(found.ratePerSecond <= limit && found.ratePerSecond >= limit / 1.06);
        assert.equal(found.limitedBy, 'the function itself (exec)');
      }),
      { numRuns: 50 },
    );
  });

  test('gives 0 when the lowest rate fails, and the highest allowed when nothing does', async () => {
    assert.equal((await findCapacity(async (rate) => probeAt(rate, false), search())).ratePerSecond, 0);
    const all = await findCapacity(async (rate) => probeAt(rate, true), search({ toPerSecond: 100 }));
    assert.equal(all.ratePerSecond, 100);
    assert.equal(all.limitedBy, '');
  });

  test('falls back to the next lower rate, unconfirmed, when the second try at the answer fails', async () => {
    const tries = new Map<number, number>();
    const found = await findCapacity(
      async (rate) => {
        const before = tries.get(rate) ?? 0;
        tries.set(rate, before + 1);
        return probeAt(rate, rate <= 50 && before === 0);
      },
      search({ precision: 0.5 }),
    );
    assert.equal(found.isConfirmed, false);
    assert.ok(found.ratePerSecond < 50);
  });

  test('stops when it is interrupted', async () => {
    const abort = new AbortController();
    const found = await findCapacity(
      async (rate) => {
        abort.abort();
        return probeAt(rate, true);
      },
      search({ signal: abort.signal }),
    );
    assert.equal(found.probes.length, 1);
  });
});

describe('a probe is judged', () => {
  const goal = { p99Ms: 50, maxFailedShare: 0.001, maxRefusedShare: 0 };
  const latency = (ms: number) => {
    const durations = new Durations();
    for (let sample = 0; sample < 1_000; sample++) durations.record(ms);
    return durations;
  };

  test('by its p99, and one without enough samples never holds', () => {
    assert.equal(judgeProbe(10, sampleResult({ latency: latency(40) }), goal).isSustained, true);
    assert.equal(judgeProbe(10, sampleResult({ latency: latency(60) }), goal).isSustained, false);
    assert.match(judgeProbe(10, sampleResult(), goal).reasons.join(), /too few answers/);
  });

  test('as limited by the generator or by what admission said', () => {
    const saturated = sampleResult({
      latency: latency(60),
      reasons: ['the generator was the bottleneck: schedule lag p99 9 ms, limit 5 ms'],
    });
    assert.equal(judgeProbe(10, saturated, goal).limitedBy, 'the load generator, not the server');
    const refused = sampleResult({
      latency: latency(60),
      errors: [
        {
          code: 'edge/node_at_capacity',
          outcome: 'refused',
          count: 3,
          firstSequence: 1,
          firstAtMs: 1,
          firstStatus: 503,
          firstDetail: '',
        },
      ],
    });
    assert.match(judgeProbe(10, refused, goal).limitedBy, /budget of the node/);
  });
});

describe('planning nodes', () => {
  const node: SimulatedNode = {
    memoryBytes: 1024 ** 3,
    maxMachines: 10,
    machineBytes: 50 * 1024 ** 2,
    blankBytes: 20 * 1024 ** 2,
    restoreMs: 20,
    spawnMs: 60,
    primeMs: 300,
    wakeMs: 2,
    ready: 1,
    blank: 1,
    maxPerTemplate: 10,
    idleMs: 60_000,
  };
  async function* arrivals(): AsyncGenerator<SimulatedArrival> {
    for (let index = 0; index < 100; index++) yield { atMs: index * 10, template: 0, busyMs: 450 };
  }
  /** Refuses what is beyond 10 machines a node. */
  const simulator: PoolSimulator = {
    async simulate(given, { nodes }) {
      const { peak } = await demandOf(given);
      const places = nodes * 10;
      return {
        invocations: 100,
        refused: Math.max(0, peak - places),
        hitRate: 1,
        addedWaitP50Ms: 0,
        addedWaitP99Ms: peak > places ? 1_000 : 1,
        peakMachines: Math.min(peak, places),
        memoryByteHours: 0,
      };
    },
  };
  const options = { node, goal: { addedWaitP99Ms: 50, maxRefusedShare: 0 }, seed: 1, measured: null };

  test('the smallest number of nodes that holds the goal is found, and set beside the demand of the trace', async () => {
    const plan = await planNodes({ simulator, arrivals }, { ...options, maxNodes: 64 });
    assert.deepEqual(await demandOf(arrivals()), { peak: 45, templatePeaks: [45] });
    assert.equal(plan.nodes, 5);
    assert.equal(plan.checks[0]?.other, 45);
  });

  test('a goal that no allowed number holds is said to be out of reach', async () => {
    const plan = await planNodes({ simulator, arrivals }, { ...options, maxNodes: 3 });
    assert.equal(plan.nodes, null);
  });

  test('a measured replay is set beside the estimate', async () => {
    const measured = { machines: 50, memoryBytes: 50 * 45 * 1024 ** 2 };
    const plan = await planNodes({ simulator, arrivals }, { ...options, maxNodes: 64, measured });
    assert.match(
      plan.checks.find(({ what }) => what.includes('machines, against a measured'))!.remark,
      /-10 % apart/,
    );
  });
});
