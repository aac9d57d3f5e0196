import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PoolOptions } from './options.ts';
import { syntheticTrace } from './simulated-trace.ts';
import { type SimulationOptions, simulate } from './simulator.ts';
import { plainOptions } from './test-world.ts';

const fleet = (pool: Partial<PoolOptions>, changes: Partial<SimulationOptions> = {}): SimulationOptions => ({
  seed: 3,
  nodes: 2,
  maxMachinesPerNode: 20,
  concurrentRestores: 2,
  templates: 5,
  nodesPerTemplate: 2,
  poolOf: () => ({ ...plainOptions, ready: 0, blank: 0, ...pool }),
  costs: { spawnMs: 60, restoreMs: 20, primeMs: 300, wakeMs: 2, blankMiB: 10, readyMiB: 32, servingMiB: 40 },
  ...changes,
});

const traffic = (hours: number, callsPerSecond: number) =>
  syntheticTrace({ seed: 5, templates: 5, hours, callsPerSecond });

test('the same seed gives the same report, and every call is served or refused', async () => {
  const runs = await Promise.all([1, 2].map(() => simulate(traffic(0.05, 5), fleet({ ready: 1 }))));
  const [first, second] = runs;
  assert.deepEqual(first, second);
  const refusals = Object.values(first!.refused).reduce((sum, count) => sum + count, 0);
  assert.ok(first!.calls > 500);
  assert.equal(first!.served + refusals, first!.calls);
  assert.equal(
    Object.values(first!.starts).reduce((sum, count) => sum + count, 0),
    first!.served,
  );
});

test('an hour of one ready machine is one machine-hour of its memory', async () => {
  const report = await simulate(
    [{ atMs: 3_600_000, template: 0, durationMs: 10 }],
    fleet({ ready: 1 }, { nodes: 1, templates: 1, nodesPerTemplate: 1 }),
  );
  assert.deepEqual([report.starts.ready, report.hitRate, report.addedWaitMs.p99], [1, 1, 2]);
  assert.ok(Math.abs(report.machineHours - 1) < 0.002, `${report.machineHours}`);
  assert.ok(Math.abs(report.memoryGiBHours - 32 / 1024) < 0.0002, `${report.memoryGiBHours}`);
});

test('a warm machine buys hits for memory: the report shows both sides', async () => {
  const cold = await simulate(traffic(0.2, 0.5), fleet({}));
  const warm = await simulate(traffic(0.2, 0.5), fleet({ ready: 1 }));
  assert.ok(warm.hitRate > cold.hitRate + 0.05, `${warm.hitRate} and ${cold.hitRate}`);
  assert.ok(warm.memoryGiBHours > cold.memoryGiBHours);
  assert.equal(Math.round(cold.addedWaitMs.p99), 80, 'a spawn and a load');
});

test('a fleet too small for its traffic refuses, and holds no more machines than it may', async () => {
  const report = await simulate(
    traffic(0.02, 40),
    fleet({ queue: { depth: 2, timeoutMs: 200 } }, { maxMachinesPerNode: 3 }),
  );
  assert.ok((report.refused.queue_full ?? 0) > 0, JSON.stringify(report.refused));
  assert.ok(report.peakMachines <= 6, `${report.peakMachines}`);
});

test('a synthetic trace is in order, has the rate asked for, and a few templates carry most of it', () => {
  const calls = [...syntheticTrace({ seed: 9, templates: 100, hours: 24, callsPerSecond: 1 })];
  assert.ok(Math.abs(calls.length / 86_400 - 1) < 0.05, `${calls.length}`);
  assert.ok(calls.every((call, index) => index === 0 || call.atMs >= calls[index - 1]!.atMs));
  assert.ok(calls.every(({ template, durationMs }) => template >= 0 && template < 100 && durationMs > 0));
  const top = calls.filter(({ template }) => template < 10).length / calls.length;
  assert.ok(top > 0.5 && top < 0.8, `${top}`);
  const day = calls.filter(({ atMs }) => atMs < 43_200_000).length / calls.length;
  assert.ok(day > 0.6, 'the first half of the sine is the busy one');
});

for (const reuse of ['always', 'never'] as const) {
  test(`two templates that take turns on a full node don't take each other's machines again and again (reuse ${reuse})`, async () => {
    const turns = Array.from({ length: 1_000 }, (_, call) => ({
      ...{ atMs: call * 500, template: call % 2, durationMs: 100 },
    }));
    const pool = { ready: 1, max: 8, reuse, followDemand: true };
    const room = { nodes: 1, nodesPerTemplate: 1, templates: 2, maxMachinesPerNode: 2 };
    const report = await simulate(turns, fleet(pool, room));
    assert.ok(report.shed <= 2, `${report.shed} shed`);
    assert.equal(report.wasted, 0);
    assert.ok(report.hitRate > 0.99, `${report.hitRate}`);
  });
}
