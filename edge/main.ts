/** Composition root of an edge: the one place that knows which driver stands behind which port. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { type Clock, systemClock } from '../sdk/index.ts';
import {
  createBuildLane,
  createImageBuilder,
  type GuestImage,
  type KernelImage,
  sweepVersions,
} from '../templates/index.ts';
import { createChecksums } from './build/checksums.ts';
import { createSnapshotHost } from './build/snapshot-host.ts';
import { dataLayout, type EdgeConfig, edgeConfigSchema } from './config.ts';
import { lockDataDirectory } from './data-lock.ts';
import { createDiskUse } from './disk/disk-use.ts';
import { createEdge, type Edge } from './edge.ts';
import { connectGuest } from './guest/index.ts';
import {
  createImageDigester,
  createMemoryBudget,
  createPageCopier,
  readAvailableBytes,
  readMemoryUse,
} from './memory/index.ts';
import { openNetworks, readNetworkConfig, slotOfLeftover, withNetworkCards } from './network/index.ts';
import { loadNodeId } from './node-identity.ts';
import { loadSandboxSecret, openSandboxStore, type SandboxStore } from './sandbox/index.ts';
import type { Leftover } from './vmm/port.ts';
import { createQemuVmm } from './vmm/qemu/index.ts';

const root = join(import.meta.dirname, '..');
const agentPath = join(root, 'templates/agent/build/agent');
const extentsToolPath = join(root, 'edge/native/build/data-extents');
const copierPath = join(root, 'edge/native/build/page-copy');
const shimPath = join(root, 'edge/native/build/map-private.so');
const networkToolsPath = join(root, 'edge/network/native/build');

/** Steps that may take long on a first start. */
export type StartStep = (title: string) => void;

export interface OpenEdgeDeps {
  readonly log: Logger;
  readonly onStep: StartStep;
  readonly clock?: Clock;
  /** How guest channels are opened; benchmarks look over its shoulder. Default: the real one. */
  readonly connectGuest?: typeof connectGuest;
  /** Named network namespace that plays the host for machines with a network card; tests have one. */
  readonly networkOutside?: string;
  /** Called between any two steps of a change of a sandbox that a crash may part; tests end the process there. */
  readonly step?: (name: string) => void | Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * Removes what an earlier edge of this data directory left, before this one reports ready; but machines of sandboxes are answered,
 * to be taken over.
 */
async function reclaim(
  vmm: Awaited<ReturnType<typeof createQemuVmm>>,
  log: Logger,
  store: SandboxStore,
): Promise<Leftover[]> {
  const wanted = new Set(store.sandboxes().map(({ machine }) => machine?.id));
  const kept: Leftover[] = [];
  for (const leftover of await vmm.leftovers()) {
    if (wanted.has(leftover.id) && leftover.pid !== null) {
      kept.push(leftover);
      continue;
    }
    await vmm.remove(leftover);
    log.warn({ 'machine.id': leftover.id, pid: leftover.pid }, 'leftover machine removed');
  }
  return kept;
}

/**
 * Opens the edge of a data directory: locks it, prepares the guest kernel, decides on the accelerator, removes leftovers.
 * The caller closes or disposes it, which also frees the lock.
 * @throws GatewayError `host_not_ready`, `conflict` (another edge has the directory), `invalid_request` (configuration)
 */
export async function openEdge(
  deps: OpenEdgeDeps,
  input: Partial<EdgeConfig> & Pick<EdgeConfig, 'dataDirectory'>,
): Promise<Edge> {
  const config = edgeConfigSchema.parse(input);
  const clock = deps.clock ?? systemClock;
  const connect = deps.connectGuest ?? connectGuest;
  const layout = dataLayout(config.dataDirectory);
  for (const directory of [
    config.dataDirectory,
    layout.images,
    layout.cache,
    layout.versions,
    layout.machines,
    layout.logs,
    layout.snapshots,
    layout.bases,
  ]) {
    await mkdir(directory, { recursive: true, mode: 0o700 });
  }
  await using stack = new AsyncDisposableStack();
  stack.use(await lockDataDirectory(config.dataDirectory));
  const node = await loadNodeId(layout.node);
  await sweepVersions(layout.versions);

  const images = createImageBuilder({}, { dataPath: config.dataDirectory, agentPath });
  const onProgress = (progress: { readonly message: string }) =>
    deps.log.debug({ output: progress.message }, 'image build');
  deps.onStep('Prepare the guest kernel');
  const kernel = await images.ensureKernel({ signal: deps.signal, onProgress });
  deps.onStep('Choose the accelerator');
  const bareVmm = await createQemuVmm(
    { now: () => clock.now() },
    {
      runDirectory: layout.machines,
      cacheDirectory: layout.cache,
      shimPath,
      tapLauncherPath: join(networkToolsPath, 'tap-launch'),
      accelerator: config.accelerator,
      probeGuest: { kernelPath: kernel.vmlinuzPath, initrdPath: kernel.initrdPath },
      signal: deps.signal,
    },
  );
  const { accelerator, reason } = bareVmm.verdict;
  deps.log.info({ accelerator, reason }, 'accelerator chosen');
  const store = stack.use(openSandboxStore(layout.sandboxes, () => clock.now()));
  const leftovers = await reclaim(bareVmm, deps.log, store);
  const onError = (err: unknown, what: string) => deps.log.error({ err }, what);
  const networks = stack.use(
    await openNetworks(
      {
        ...{ node, onError },
        now: () => clock.now(),
        nativePath: networkToolsPath,
        outside: deps.networkOutside,
      },
      config.network ?? (await readNetworkConfig(layout.network)),
    ),
  );
  const slots = await Promise.all(leftovers.map(slotOfLeftover));
  await networks.start(slots.filter((slot) => slot !== null));
  const vmm = withNetworkCards({ vmm: bareVmm, networks, onError });

  const digester = stack.use(createImageDigester({ extentsToolPath }));
  const host = createSnapshotHost({
    vmm,
    node,
    clock,
    connectGuest: connect,
    checksums: createChecksums(digester),
    networks,
    async image(definition, { onOutput, signal }) {
      const recipe = { suite: definition.image.debian, packages: definition.image.packages };
      const rootImage = await images.ensureRoot(recipe, {
        signal,
        onProgress: (progress) => onOutput(`${progress.message}\n`),
      });
      return guestImage(kernel, rootImage);
    },
  });
  const edge = createEdge(
    {
      node,
      clock,
      log: deps.log,
      random: Math.random,
      vmm,
      connectGuest: connect,
      networks,
      host,
      build: { host, versionsDirectory: layout.versions, clock, lane: createBuildLane() },
      privateBytes: async (machine) =>
        (await readMemoryUse(machine.pid, machine.memoryPath)).ram.privateBytes,
      memory: createMemoryBudget(
        { clock, availableBytes: readAvailableBytes },
        { reserveBytes: config.memoryReserveMiB * 2 ** 20 },
      ),
      diskUse: createDiskUse(
        { clock },
        { directories: [layout.versions, layout.snapshots, layout.bases, layout.machines] },
      ),
      logsDirectory: layout.logs,
      sandboxes: {
        ...{ store, digester, snapshotsDirectory: layout.snapshots, basesDirectory: layout.bases },
        copier: stack.use(createPageCopier({ toolPath: copierPath })),
        secret: await loadSandboxSecret(layout.sandboxSecret),
        ...(deps.step === undefined ? {} : { step: deps.step }),
      },
    },
    config,
  );
  await edge.start(leftovers);
  const held = stack.move();
  const release = async () => held.disposeAsync();
  return {
    ...edge,
    async close(options) {
      await edge.close(options);
      await release();
    },
    async dispose() {
      await edge.dispose();
      await release();
    },
    async [Symbol.asyncDispose]() {
      await edge.dispose();
      await release();
    },
  };
}

function guestImage(
  kernel: KernelImage,
  rootImage: { readonly rootPath: string; readonly digest: string },
): GuestImage {
  return {
    kernelPath: kernel.vmlinuzPath,
    initrdPath: kernel.initrdPath,
    kernelDigest: `sha256:${kernel.digest}`,
    initrdDigest: `sha256:${kernel.digest}`,
    rootPath: rootImage.rootPath,
    rootDigest: `sha256:${rootImage.digest}`,
  };
}
