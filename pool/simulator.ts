/**
 * Replays a trace against the real pools of many nodes under a virtual clock, to compare sizes and policies before they
 * meet traffic. Only the machines are pretended, and the gateway, of which no more than its placement is modelled.
 */
import { build } from 'hdr-histogram-js';
import { type ErrorCode, isGatewayError, type StartType, type VersionDigest } from '../sdk/index.ts';
import { createFakeSource, type FakeSourceOptions } from './fake-source.ts';
import type { Lease } from './lease.ts';
import type { PoolOptions } from './options.ts';
import type { Pool } from './pool.ts';
import { createPools } from './pool-set.ts';
import { createSeededRandom, type SimulatedCall } from './simulated-trace.ts';
import { createSimulationMeter, type MemoryCosts } from './simulation-meter.ts';
import { hitRate } from './stats.ts';
import { createVirtualClock } from './virtual-clock.ts';

/** What a machine takes; measure it on the hardware in question. */
export interface MachineCosts
  extends MemoryCosts,
    Pick<FakeSourceOptions, 'spawnMs' | 'restoreMs' | 'primeMs' | 'wakeMs' | 'disposeMs'> {}

export interface SimulationOptions {
  readonly seed: number;
  readonly nodes: number;
  readonly maxMachinesPerNode: number;
  readonly concurrentRestores: number;
  readonly templates: number;
  /** Nodes a template is served on; a call goes to the one with most room, and when refused to the next. */
  readonly nodesPerTemplate: number | ((template: number) => number);
  readonly poolOf: (template: number) => PoolOptions;
  readonly costs: MachineCosts;
}

export interface SimulationReport {
  readonly calls: number;
  readonly served: number;
  /** Calls which every node of their template refused, by the last code. */
  readonly refused: Readonly<Partial<Record<ErrorCode, number>>>;
  readonly starts: Readonly<Record<StartType, number>>;
  /** Share of the served that found a machine ready or reused. */
  readonly hitRate: number;
  /** Milliseconds from arrival to lease, over the served. */
  readonly addedWaitMs: { readonly p50: number; readonly p99: number; readonly max: number };
  readonly machineHours: number;
  readonly memoryGiBHours: number;
  readonly peakMachines: number;
  /** Ready machines which ended without having served: what a policy spent for nothing. */
  readonly wasted: number;
  /** Machines shed for another pool's invocation, and leases that had to wait for it. */
  readonly shed: number;
}

/** A digest for template `index` of the simulated fleet. */
const digestOf = (index: number): VersionDigest =>
  `sha256:${index.toString(16).padStart(64, '0')}` as VersionDigest;

/**
 * Runs the trace to its end and everything that is still in flight after it; `calls` are read once, in order. Rejects with
 * what a pool threw that is no `GatewayError`, since that is a defect.
 */
export async function simulate(
  calls: Iterable<SimulatedCall> | AsyncIterable<SimulatedCall>,
  options: SimulationOptions,
): Promise<SimulationReport> {
  const clock = createVirtualClock({ settles: 'promises' });
  const random = createSeededRandom(options.seed);
  const meter = createSimulationMeter({ now: clock.monotonic, costs: options.costs });
  const waits = build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: 3_600_000_000,
    numberOfSignificantValueDigits: 3,
  });
  const refused: Partial<Record<ErrorCode, number>> = {};
  const starts: Record<StartType, number> = { ready: 0, restored: 0, spawned: 0, reused: 0 };
  const defects: unknown[] = [];
  let count = 0;
  let inFlight = 0;

  const nodes = Array.from({ length: options.nodes }, () =>
    createPools(
      { clock, random, observer: { transition: meter.observe } },
      { maxMachines: options.maxMachinesPerNode, concurrentRestores: options.concurrentRestores },
    ),
  );
  const { nodesPerTemplate } = options;
  const homes: Pool[][] = Array.from({ length: options.templates }, (_, template) =>
    distinct(
      typeof nodesPerTemplate === 'number' ? nodesPerTemplate : nodesPerTemplate(template),
      options.nodes,
      random,
    ).map((node) =>
      nodes[node]!.getOrCreate({
        source: createFakeSource({ clock }, { ...options.costs, digest: digestOf(template) }),
        options: options.poolOf(template),
      }),
    ),
  );

  /** As the gateway places: the least busy first, the next when refused. */
  async function place(template: number): Promise<Lease> {
    let last: unknown;
    for (const pool of homes[template]!.toSorted((a, b) => a.load - b.load)) {
      try {
        return await pool.acquire();
      } catch (error) {
        last = error;
      }
    }
    throw last;
  }

  async function call({ template, durationMs }: SimulatedCall): Promise<void> {
    const arrivedAt = clock.monotonic();
    count += 1;
    inFlight += 1;
    try {
      const lease = await place(template);
      starts[lease.start] += 1;
      waits.recordValue(Math.round((clock.monotonic() - arrivedAt) * 1000));
      await new Promise<void>((resolve) => void clock.schedule(durationMs, resolve));
      lease.release('reusable');
    } catch (error) {
      if (isGatewayError(error)) refused[error.code] = (refused[error.code] ?? 0) + 1;
      else defects.push(error);
    } finally {
      inFlight -= 1;
    }
  }

  for await (const next of calls) {
    const aheadMs = next.atMs - clock.monotonic();
    if (aheadMs > 0) await clock.advance(aheadMs);
    void call(next);
  }
  while (inFlight > 0) await clock.advance(1_000);
  const usage = meter.read(clock.monotonic());
  const shed = nodes
    .flatMap((node) => node.stats().pools)
    .reduce((sum, pool) => sum + (pool.discards.shed ?? 0), 0);
  const { wasted } = meter;
  const disposed = nodes.map((node) => node.dispose());
  await clock.advance(60_000);
  await Promise.all(disposed);
  if (defects.length > 0) throw defects[0];

  const served = waits.totalCount;
  const waitMs = (percentile: number) => waits.getValueAtPercentile(percentile) / 1000;
  return {
    calls: count,
    served,
    refused,
    starts,
    hitRate: hitRate(starts) ?? 0,
    addedWaitMs: { p50: waitMs(50), p99: waitMs(99), max: waits.maxValue / 1000 },
    ...usage,
    wasted,
    shed,
  };
}

/** `count` different numbers below `below`. */
function distinct(count: number, below: number, random: () => number): number[] {
  const chosen = new Set<number>();
  while (chosen.size < Math.min(count, below)) chosen.add(Math.floor(random() * below));
  return [...chosen];
}
