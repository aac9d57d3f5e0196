import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { createPools, describeSizing, hitRate, type PoolObserver, type PoolStats } from '../pool/index.ts';
import {
  type Clock,
  GatewayError,
  type NodeId,
  type NodeInfo,
  type PoolInfo,
  shortDigest,
  type VersionDigest,
} from '../sdk/index.ts';
import {
  type BuildDeps,
  buildVersion,
  inspectVersion,
  rebuildVersion,
  removeVersionFiles,
  type SnapshotHost,
} from '../templates/index.ts';
import type { BuildEvent, EdgeClient, InvokeRequest, LogRequest, ServedVersion } from './client/port.ts';
import type { SandboxEdge } from './client/sandbox-port.ts';
import type { EdgeConfig } from './config.ts';
import type { DiskUse } from './disk/disk-use.ts';
import type { ConnectOptions, SandboxChannel } from './guest/index.ts';
import { createInvoker, type LeaseSource } from './invoke/invoker.ts';
import { LogCollector } from './logs/collector.ts';
import { announceRefusals, refusalLines } from './logs/network-lines.ts';
import { MachineRegistry } from './machine/registry.ts';
import { versionNetworks } from './machine/version-network.ts';
import type { MemoryBudget } from './memory/index.ts';
import { createEdgeMetrics } from './metrics.ts';
import type { MachineNetworks } from './network/index.ts';
import { createSandboxes, createSandboxNetworks, type SandboxParts } from './sandbox/index.ts';
import { ServingSet } from './versions/serving-set.ts';
import type { Leftover, Vmm, VmmProcess } from './vmm/port.ts';

export interface EdgeDeps {
  readonly node: NodeId;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
  readonly vmm: Vmm;
  readonly connectGuest: (options: ConnectOptions) => Promise<SandboxChannel>;
  readonly networks: MachineNetworks;
  readonly host: SnapshotHost;
  readonly build: BuildDeps;
  readonly privateBytes: (vmm: VmmProcess) => Promise<number | null>;
  readonly diskUse: () => Promise<DiskUse | null>;
  readonly memory: MemoryBudget;
  readonly logsDirectory: string;
  readonly sandboxes: SandboxParts;
}

/** An edge: owner of the machines of one node. `close` drains, `dispose` ends everything now. */
export interface Edge extends EdgeClient, AsyncDisposable {
  /** Running sandboxes outlive `close` and `dispose`: a later edge of this data directory takes them over. */
  readonly sandboxes: SandboxEdge;
  /** Takes over what an earlier edge left running; to be called once, before anything else. */
  start(leftovers: readonly Leftover[]): Promise<void>;
  /** Stops admitting and waits for leases to end, at most `deadlineMs`; then ends what is left. */
  close(options: { readonly deadlineMs: number }): Promise<void>;
  /** Ends all machines now and waits for them. Idempotent. */
  dispose(): Promise<void>;
}

const pressureCheckMs = 1_000;

const sandboxDefaults = {
  drainMs: 5_000,
  forkDrainMs: 250,
  sweepMs: 1_000,
  keepEndedMs: 24 * 3_600_000,
  idleMs: 60_000,
} as const;

/** Puts an edge together from its parts. Nothing starts before `setServing` names versions. */
export function createEdge(deps: EdgeDeps, config: Omit<EdgeConfig, 'dataDirectory' | 'accelerator'>): Edge {
  const { clock, log, vmm } = deps;
  const startedAt = clock.now();
  const stopping = new AbortController();
  let isDraining = false;

  const logs = new LogCollector(clock, {
    directory: deps.logsDirectory,
    maxBytesPerMachine: config.logBytes,
    kept: (request) => refusalLines(deps.networks, request),
  });
  const unwatch = announceRefusals(deps.networks, logs);
  const machines = new MachineRegistry({
    node: deps.node,
    nameOf: (digest) => serving.nameOf(digest),
    privateBytes: deps.privateBytes,
  });
  const metrics = createEdgeMetrics({
    stats: () => pools.stats(),
    templateOf: (digest) => serving.nameOf(digest)?.template ?? null,
    network: () => deps.networks.stats(),
  });
  const observer: PoolObserver = {
    ...metrics.observer,
    transition(change) {
      metrics.observer.transition(change);
      machines.transition(change);
      serving.transition(change);
      if (change.reason !== null) {
        log.debug(
          { 'machine.id': change.machineId, from: change.from, reason: change.reason },
          'machine discarded',
        );
      }
    },
    defect: (error) => log.error({ err: error }, 'pool defect'),
  };
  const pools = createPools(
    {
      ...{ clock, random: deps.random, observer },
      admit: deps.memory.admit,
      otherMachines: () => keeping.heldMachines(),
    },
    config,
  );
  /** Under pressure blanks go first, then ready machines above the floor; leased ones never do. */
  let cancelPressureCheck = () => {};
  const checkPressure = () => {
    cancelPressureCheck = clock.schedule(pressureCheckMs, checkPressure);
    if (!deps.memory.isShort() || pools.shed(1) === 0) return;
    log.warn('memory is short: an idle machine was given up');
  };
  checkPressure();
  const serving = new ServingSet({
    pools,
    source: {
      vmm,
      node: deps.node,
      clock,
      connectGuest: deps.connectGuest,
      enterNetwork: versionNetworks(deps.networks),
      onBlank: (blank, version) => machines.add(blank.vmm, version.digest, blank.startedAt),
      onMachine: (machine, version) => {
        if (version.definition.start !== undefined) logs.attach(machine);
      },
    },
    inspect: (digest) => inspectVersion(deps.build, digest, { signal: stopping.signal }),
    async rebuild(digest, reason) {
      log.warn({ 'template.digest': digest, reason }, 'rebuilding version');
      for await (const event of rebuildVersion(deps.build, digest, reason, { signal: stopping.signal })) {
        if (event.type === 'task')
          log.info({ 'template.digest': digest, task: event.title, state: event.state }, 'rebuild progress');
      }
    },
    onError: (digest, error) => log.error({ err: error, 'template.digest': digest }, 'version not ready'),
  });

  async function leases(digest: VersionDigest): Promise<LeaseSource> {
    if (isDraining) throw new GatewayError('draining', 'the node is stopping', { component: 'edge' });
    const { pool, definition } = await serving.find(digest);
    return { definition, acquire: (request) => pool.acquire(request) };
  }
  const invoker = createInvoker({ clock, leases, onLease: (id) => machines.invocation(id) });

  const keeping = createSandboxes(
    {
      ...{ node: deps.node, clock, log, vmm, connectGuest: deps.connectGuest, restores: pools.restores },
      networks: createSandboxNetworks(deps.networks),
      acquire: async (digest, { signal }) =>
        (await leases(digest)).acquire({ signal, session: undefined, isExclusive: true }),
      room: {
        maxMachines: config.maxMachines,
        pooled: () => pools.size,
        shedPool: () => pools.shed(1) > 0,
        onFreed: () => {
          for (const { pool } of serving.serving()) pool.poke();
        },
      },
      onStarted: (machine, digest) => machines.add(machine, digest, clock.now()),
      onServing: (id) => machines.serves(id),
    },
    deps.sandboxes,
    { ...sandboxDefaults, ...config, perBase: config.forkBlanks },
  );

  async function nodeInfo(): Promise<NodeInfo> {
    return {
      id: deps.node,
      isReady: !isDraining,
      isDraining,
      accelerator: vmm.verdict.accelerator,
      acceleratorReason: vmm.verdict.reason,
      isTenantBoundary: vmm.verdict.accelerator === 'kvm',
      machines: machines.size,
      maxMachines: config.maxMachines,
      versions: serving.size,
      startedAt,
      disk: await deps.diskUse(),
      network: deps.networks.describe(),
    };
  }

  const dispose = async () => {
    isDraining = true;
    stopping.abort(new GatewayError('draining', 'the node is stopping', { component: 'edge' }));
    unwatch();
    cancelPressureCheck();
    await keeping.close();
    const { leftBehind } = await pools.dispose();
    if (leftBehind > 0) log.error({ machines: leftBehind }, 'machines left behind');
  };

  return {
    sandboxes: keeping.sandboxes,
    start: (leftovers) => keeping.start(leftovers),
    node: nodeInfo,
    invoke: (request: InvokeRequest) => invoker.invoke(request),
    upgrade: (request: InvokeRequest) => invoker.upgrade(request),
    build(archive: Readable, { signal }): AsyncIterable<BuildEvent> {
      return buildVersion(deps.build, archive, { signal: AbortSignal.any([signal, stopping.signal]) });
    },
    setServing: (versions: readonly ServedVersion[]) => serving.set(versions),
    async removeVersion(digest) {
      if (serving.nameOf(digest) !== undefined) {
        throw new GatewayError('conflict', `version ${shortDigest(digest)} is being served`, {
          component: 'edge',
        });
      }
      await removeVersionFiles(deps.build.versionsDirectory, digest);
    },
    machines: () => machines.list(),
    async pools(): Promise<PoolInfo[]> {
      return [...serving.serving()].map(({ served, pool, definition }) =>
        toPoolInfo(deps.node, served, targetOf(definition.pool), pool.stats()),
      );
    },
    logs: (request: LogRequest) => logs.read(request),
    metrics: () => metrics.text(),
    async close({ deadlineMs }) {
      isDraining = true;
      await keeping.close();
      const expired = Promise.withResolvers<void>();
      const cancel = clock.schedule(deadlineMs, expired.resolve);
      await Promise.race([pools.drainAll(), expired.promise]);
      cancel();
      await dispose();
    },
    dispose,
    [Symbol.asyncDispose]: dispose,
  };
}

const targetOf = ({ ready, blank, max }: PoolInfo['target']): PoolInfo['target'] => ({ ready, blank, max });

function toPoolInfo(
  node: NodeId,
  served: ServedVersion,
  target: PoolInfo['target'],
  stats: PoolStats,
): PoolInfo {
  const { machines } = stats;
  return {
    node,
    template: served.template,
    version: served.version,
    digest: served.digest,
    isDraining: stats.isDraining,
    target,
    blank: machines.blank + machines.spawning,
    restoring: machines.restoring,
    ready: machines.ready,
    serving: machines.serving + machines.waking,
    waiting: stats.waiting,
    starts: { ...stats.starts },
    failures: Object.values(stats.failures).reduce((sum, count) => sum + count, 0),
    lastFailure: stats.lastFailure?.message ?? null,
    sizing: {
      ready: stats.sizing.ready,
      because: describeSizing(stats.sizing),
      refillMs: stats.sizing.refillMs,
    },
    hitRate: hitRate(stats.starts),
    refusals: { ...stats.refusals },
    discards: { ...stats.discards },
    serviceMs: stats.averages.serviceMs,
  };
}
