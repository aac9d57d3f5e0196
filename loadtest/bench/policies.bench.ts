/**
 * `npm run bench:policies [hours] [trace file] [format]`: the pool's own code under a virtual clock over a day of traffic to 1,000
 * templates on 200 nodes, one policy after the other. Without a file the traffic is synthetic; with one of the formats of
 * `snapgate loadtest trace` it is recorded. Machines cost what they were measured to under software emulation (DESIGN section
 * 4); under KVM all of it is less.
 */
import {
  type MachineCosts,
  type PoolOptions,
  type SimulatedCall,
  simulate,
  syntheticTrace,
} from '../../pool/index.ts';
import { traceOptionsSchema } from '../trace/options.ts';
import { readTrace } from '../trace/source.ts';
import { require, writeResult } from './bench-node.ts';

const hours = Number(process.argv[2] ?? 24);
const file = process.argv[3];
const callsPerSecond = 4;
const fleet = {
  seed: 1,
  templates: 1_000,
  nodes: 200,
  nodesPerTemplate: 2,
  maxMachinesPerNode: 40,
  concurrentRestores: 2,
};
const costs: MachineCosts = {
  ...{ spawnMs: 60, restoreMs: 100, primeMs: 300, wakeMs: 15, disposeMs: 10 },
  ...{ blankMiB: 25, readyMiB: 40, servingMiB: 45 },
};

const base: PoolOptions = {
  ...{ ready: 0, blank: 0, max: 8, reuse: 'always', concurrency: 1, followDemand: false },
  queue: { depth: 64, timeoutMs: 5_000 },
  ttl: { idleMs: 60_000, lifetimeMs: 3_600_000 },
};
const policies: Readonly<Record<string, PoolOptions>> = {
  'nothing warm': base,
  'one blank': { ...base, blank: 1 },
  'one ready': { ...base, ready: 1 },
  'one ready, one blank': { ...base, ready: 1, blank: 1 },
  'demand from nothing': { ...base, followDemand: true },
  'demand over one ready': { ...base, ready: 1, followDemand: true },
  'idle for 10 min': { ...base, ttl: { ...base.ttl, idleMs: 600_000 } },
  'once each, demand': { ...base, reuse: 'never', ready: 1, followDemand: true },
};

function traffic(): Iterable<SimulatedCall> | AsyncIterable<SimulatedCall> {
  const { seed, templates } = fleet;
  return file === undefined ? syntheticTrace({ seed, templates, hours, callsPerSecond }) : recorded(file);
}

async function* recorded(path: string): AsyncGenerator<SimulatedCall> {
  const takeMs = hours * 3_600_000;
  const options = traceOptionsSchema.parse({ file: path, format: process.argv[4], takeMs });
  for await (const { atMs, functionIndex, durationMs } of readTrace(options, fleet.seed)) {
    yield { atMs, template: functionIndex % fleet.templates, durationMs: durationMs > 0 ? durationMs : 80 };
  }
}

const rows: Record<string, Record<string, number>> = {};
let longestCpuSeconds = 0;
for (const [name, options] of Object.entries(policies)) {
  const before = process.cpuUsage();
  const report = await simulate(traffic(), { ...fleet, poolOf: () => options, costs });
  const { user, system } = process.cpuUsage(before);
  const cpuSeconds = (user + system) / 1e6;
  longestCpuSeconds = Math.max(longestCpuSeconds, cpuSeconds);
  const round = (value: number, digits = 1) => Number(value.toFixed(digits));
  rows[name] = {
    calls: report.calls,
    refused: Object.values(report.refused).reduce((sum, count) => sum + count, 0),
    'hits %': round(100 * report.hitRate, 2),
    'p50 wait ms': round(report.addedWaitMs.p50),
    'p99 wait ms': round(report.addedWaitMs.p99),
    'machine-hours': round(report.machineHours, 0),
    'GiB-hours': round(report.memoryGiBHours),
    peak: report.peakMachines,
    wasted: report.wasted,
    shed: report.shed,
    'CPU s': round(cpuSeconds),
  };
}
const { templates, nodes } = fleet;
console.log(
  `${hours} h ${file === undefined ? `at ${callsPerSecond}/s, synthetic,` : `of ${file}`} over ${templates} templates on ${nodes} nodes`,
);
console.table(rows);
// In CPU time, which other work on the machine hardly changes; the simulation is one thread.
require('CPU time of a policy, scaled to a day', (longestCpuSeconds * 24) / hours, 60, ' s');
await writeResult('policies', { hours, trace: file ?? 'synthetic', fleet, costs, rows });
