/**
 * Compares pool policies on a synthetic day of traffic: `node pool/simulator.bench.ts [callsPerSecond] [hours]`.
 * Costs are those measured under software emulation (DESIGN section 4); under KVM all are smaller.
 */
import type { PoolOptions } from './options.ts';
import { syntheticTrace } from './simulated-trace.ts';
import { type MachineCosts, simulate } from './simulator.ts';

const callsPerSecond = Number(process.argv[2] ?? 4);
const hours = Number(process.argv[3] ?? 24);
const fleet = {
  seed: 1,
  templates: 1_000,
  nodes: 200,
  nodesPerTemplate: 2,
  maxMachinesPerNode: 40,
  concurrentRestores: 2,
};
const costs: MachineCosts = {
  spawnMs: 60,
  restoreMs: 100,
  primeMs: 300,
  wakeMs: 15,
  disposeMs: 10,
  blankMiB: 25,
  readyMiB: 40,
  servingMiB: 45,
};

const base: PoolOptions = {
  ready: 0,
  blank: 0,
  max: 8,
  reuse: 'always',
  concurrency: 1,
  queue: { depth: 64, timeoutMs: 5_000 },
  ttl: { idleMs: 60_000, lifetimeMs: 3_600_000 },
  followDemand: false,
};

const policies: Record<string, PoolOptions> = {
  'nothing warm': base,
  'one blank': { ...base, blank: 1 },
  'one ready': { ...base, ready: 1 },
  'one ready, one blank': { ...base, ready: 1, blank: 1 },
  'demand from nothing': { ...base, followDemand: true },
  'demand over one ready': { ...base, ready: 1, followDemand: true },
  'idle for 10 min': { ...base, ttl: { ...base.ttl, idleMs: 600_000 } },
  'once each, demand': { ...base, reuse: 'never', ready: 1, followDemand: true },
};

const rows: Record<string, Record<string, number | string>> = {};
for (const [name, options] of Object.entries(policies)) {
  const startedAt = performance.now();
  const trace = syntheticTrace({ seed: fleet.seed, templates: fleet.templates, hours, callsPerSecond });
  const report = await simulate(trace, { ...fleet, poolOf: () => options, costs });
  rows[name] = {
    calls: report.calls,
    refused: Object.values(report.refused).reduce((sum, count) => sum + count, 0),
    'hits %': (100 * report.hitRate).toFixed(2),
    'p50 wait ms': report.addedWaitMs.p50.toFixed(1),
    'p99 wait ms': report.addedWaitMs.p99.toFixed(1),
    'machine-hours': report.machineHours.toFixed(0),
    'GiB-hours': report.memoryGiBHours.toFixed(1),
    peak: report.peakMachines,
    wasted: report.wasted,
    shed: report.shed,
    'ran s': ((performance.now() - startedAt) / 1000).toFixed(1),
  };
}
console.log(`${hours} h at ${callsPerSecond}/s over ${fleet.templates} templates on ${fleet.nodes} nodes`);
console.table(rows);
