import type { PoolSimulator } from '../../loadtest/index.ts';
import { type SimulatedCall, simulate } from '../../pool/index.ts';

/** Restores under way at once on a node, as in the edge's default. */
const concurrentRestores = 2;
const disposeMs = 10;
const invocationsAtOnce = 1;
const queue = { depth: 64, timeoutMs: 5_000 } as const;
const lifetimeMs = 3_600_000;

/**
 * The pool's own code under a virtual clock, as `loadtest plan` asks for it: templates as their definition leaves them by
 * default, each on as many nodes as its own peak needs.
 */
export const poolSimulator: PoolSimulator = {
  async simulate(arrivals, { nodes, node, seed, templatePeaks }) {
    const mib = (bytes: number) => bytes / 2 ** 20;
    const byMemory = Math.floor(node.memoryBytes / node.machineBytes);
    async function* calls(): AsyncGenerator<SimulatedCall> {
      for await (const { atMs, template, busyMs } of arrivals) yield { atMs, template, durationMs: busyMs };
    }
    const report = await simulate(calls(), {
      ...{ seed, nodes, concurrentRestores },
      maxMachinesPerNode: Math.max(1, Math.min(node.maxMachines, byMemory)),
      templates: templatePeaks.length,
      nodesPerTemplate: (template) =>
        Math.max(1, Math.ceil((templatePeaks[template] ?? 0) / node.maxPerTemplate)),
      poolOf: () => ({
        ready: node.ready,
        blank: node.blank,
        max: node.maxPerTemplate,
        reuse: 'always',
        concurrency: invocationsAtOnce,
        queue,
        ttl: { idleMs: node.idleMs, lifetimeMs },
      }),
      costs: {
        spawnMs: node.spawnMs,
        restoreMs: node.restoreMs,
        primeMs: node.primeMs,
        wakeMs: node.wakeMs,
        disposeMs,
        blankMiB: mib(node.blankBytes),
        readyMiB: mib(node.machineBytes),
        servingMiB: mib(node.machineBytes),
      },
    });
    return {
      invocations: report.calls,
      refused: Object.values(report.refused).reduce((sum, count) => sum + count, 0),
      hitRate: report.hitRate,
      addedWaitP50Ms: report.addedWaitMs.p50,
      addedWaitP99Ms: report.addedWaitMs.p99,
      peakMachines: report.peakMachines,
      memoryByteHours: report.memoryGiBHours * 2 ** 30,
    };
  },
};
