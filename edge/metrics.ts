import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { hitRate, type PoolObserver, type PoolsStats } from '../pool/index.ts';
import type { TemplateName, VersionDigest } from '../sdk/index.ts';
import type { MachineNetworks } from './network/index.ts';

export interface EdgeMetricsDeps {
  readonly stats: () => PoolsStats;
  /** Null for versions that left. Ids never become labels; template names do. */
  readonly templateOf: (digest: VersionDigest) => TemplateName | null;
  readonly network: () => ReturnType<MachineNetworks['stats']>;
}

export interface EdgeMetrics {
  readonly observer: Required<Pick<PoolObserver, 'transition' | 'leased' | 'refused'>>;
  /** Prometheus text. */
  text(): Promise<string>;
}

const unnamed = 'retired';
/** Reasons of a policy that ends a machine which was fine. */
const policyReasons: ReadonlySet<string> = new Set(['surplus', 'shed', 'evicted', 'over_max']);
const knownReasons: ReadonlySet<string> = new Set([
  ...policyReasons,
  ...['idle', 'lifetime', 'max_invocations', 'used', 'drained', 'pool_disposed', 'by_holder', 'dropped'],
  ...['spawn_failed', 'restore_failed', 'wake_failed', 'gone_failed', 'stale_failed', 'dispose_failed'],
]);
const restoreBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** What an operator watches of an edge: every pool transition, every start and refusal, and what the node holds. */
export function createEdgeMetrics(deps: EdgeMetricsDeps): EdgeMetrics {
  const registry = new Registry();
  const registers = [registry];
  const nameOf = (digest: VersionDigest) => deps.templateOf(digest) ?? unnamed;
  const transitions = new Counter({
    name: 'snapgate_pool_transitions_total',
    help: 'Changes of state of pooled machines',
    labelNames: ['template', 'from', 'to'],
    registers,
  });
  const starts = new Counter({
    name: 'snapgate_pool_leases_total',
    help: 'Leases granted, by how their machine came to be',
    labelNames: ['template', 'start'],
    registers,
  });
  const refusals = new Counter({
    name: 'snapgate_pool_refusals_total',
    help: 'Requests for a machine that were refused, by error code',
    labelNames: ['template', 'code'],
    registers,
  });
  const discards = new Counter({
    name: 'snapgate_pool_discards_total',
    help: 'Machines given up, by reason; shed: for another pool, idle, lifetime, surplus: by policy',
    labelNames: ['template', 'reason'],
    registers,
  });
  const wasted = new Counter({
    name: 'snapgate_pool_wasted_machines_total',
    help: 'Ready machines given up by policy before they served: made in vain',
    labelNames: ['template', 'reason'],
    registers,
  });
  const waits = new Histogram({
    name: 'snapgate_pool_wait_seconds',
    help: 'Wait for a machine, by phase',
    labelNames: ['template', 'phase'],
    buckets: restoreBuckets,
    registers,
  });
  new Gauge({
    name: 'snapgate_pool_machines',
    help: 'Machines now, by state',
    labelNames: ['template', 'state'],
    registers,
    collect() {
      this.reset();
      for (const pool of deps.stats().pools) {
        for (const [state, count] of Object.entries(pool.machines))
          this.inc({ template: nameOf(pool.digest), state }, count);
      }
    },
  });
  new Gauge({
    name: 'snapgate_pool_target_ready_machines',
    help: 'Ready machines that the pool aims at now',
    labelNames: ['template'],
    registers,
    collect() {
      this.reset();
      for (const pool of deps.stats().pools) this.inc({ template: nameOf(pool.digest) }, pool.sizing.ready);
    },
  });
  new Gauge({
    name: 'snapgate_pool_refill_seconds',
    help: 'What it takes to put a new ready machine in place of a taken one',
    labelNames: ['template'],
    registers,
    collect() {
      this.reset();
      for (const pool of deps.stats().pools)
        this.set({ template: nameOf(pool.digest) }, pool.sizing.refillMs / 1000);
    },
  });
  new Gauge({
    name: 'snapgate_pool_hit_ratio',
    help: 'Share of leases that found a machine ready or reused',
    labelNames: ['template'],
    registers,
    collect() {
      this.reset();
      for (const pool of deps.stats().pools) {
        const ratio = hitRate(pool.starts);
        if (ratio !== null) this.set({ template: nameOf(pool.digest) }, ratio);
      }
    },
  });
  new Gauge({
    name: 'snapgate_pool_waiting_requests',
    help: 'Requests waiting for a machine now',
    labelNames: ['template'],
    registers,
    collect() {
      this.reset();
      for (const pool of deps.stats().pools) this.inc({ template: nameOf(pool.digest) }, pool.waiting);
    },
  });
  new Gauge({
    name: 'snapgate_node_machines_limit',
    help: 'Machines this node may hold',
    registers,
    collect() {
      this.set(deps.stats().maxMachines);
    },
  });
  new Gauge({
    name: 'snapgate_network_slots',
    help: 'Network slots now, by state',
    labelNames: ['state'],
    registers,
    collect() {
      const { ready, used, preparing } = deps.network();
      for (const [state, count] of Object.entries({ ready, used, preparing })) this.set({ state }, count);
    },
  });
  for (const [name, help, key] of [
    ['snapgate_network_slot_failures_total', 'Network slots that could not be prepared', 'failures'],
    ['snapgate_network_refusals_total', 'What network rules refused', 'refusals'],
  ] as const)
    new Counter({
      name,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(deps.network()[key]);
      },
    });
  return {
    observer: {
      transition({ digest, from, to, event, reason }) {
        const template = nameOf(digest);
        transitions.inc({ template, from, to });
        if (event !== 'discard' || reason === null) return;
        // Holders may invent reasons; labels must not grow with them.
        const label = knownReasons.has(reason) ? reason : 'other';
        discards.inc({ template, reason: label });
        if (from === 'ready' && policyReasons.has(reason)) wasted.inc({ template, reason: label });
      },
      leased({ digest, start, queueMs, restoreMs }) {
        const template = nameOf(digest);
        starts.inc({ template, start });
        waits.observe({ template, phase: 'queue' }, queueMs / 1000);
        waits.observe({ template, phase: 'restore' }, restoreMs / 1000);
      },
      refused: ({ digest, code }) => refusals.inc({ template: nameOf(digest), code }),
    },
    text: () => registry.metrics(),
  };
}
