/** Puts sandbox keeping together over what the edge has. */
import type { Logger } from 'pino';
import type { Lease, RestoreSemaphore } from '../../pool/index.ts';
import {
  type Clock,
  GatewayError,
  type MachineId,
  type NodeId,
  type VersionDigest,
} from '../../sdk/index.ts';
import type { ConnectOptions, SandboxChannel } from '../guest/index.ts';
import { wakeFor } from '../machine/identity.ts';
import type { ImageDigester, PageCopier } from '../memory/index.ts';
import type { Leftover, Vmm, VmmProcess } from '../vmm/port.ts';
import { Bases } from './bases.ts';
import { BlankStock, type BlankStockOptions } from './blank-stock.ts';
import type { SandboxOptions } from './context.ts';
import { createFileDigest } from './durable.ts';
import type { SandboxNetworks } from './network.ts';
import { Restorer } from './restorer.ts';
import { Room, type RoomDeps } from './room.ts';
import { Sandboxes } from './sandboxes.ts';
import { SnapshotFiles } from './snapshot-files.ts';
import type { SandboxStore } from './store.ts';

/** What the composition root opens for sandboxes; it disposes of it after `close`. */
export interface SandboxParts {
  readonly store: SandboxStore;
  readonly copier: PageCopier;
  readonly digester: ImageDigester;
  readonly secret: Uint8Array;
  /** Directories on the filesystem of versions and machines. */
  readonly snapshotsDirectory: string;
  readonly basesDirectory: string;
  /** Called between steps that a crash may part. */
  readonly step?: (name: string) => void | Promise<void>;
}

/** What the edge does for sandboxes. */
export interface SandboxHost {
  readonly node: NodeId;
  readonly clock: Clock;
  readonly log: Logger;
  readonly vmm: Vmm;
  readonly connectGuest: (options: ConnectOptions) => Promise<SandboxChannel>;
  readonly acquire: (digest: VersionDigest, options: { readonly signal: AbortSignal }) => Promise<Lease>;
  readonly restores: RestoreSemaphore;
  readonly networks: SandboxNetworks;
  readonly room: Omit<RoomDeps, 'shedBlank'>;
  readonly onStarted: (vmm: VmmProcess, digest: VersionDigest) => void;
  /** A machine that was started serves a sandbox from now on. */
  readonly onServing: (id: MachineId) => void;
}

export interface SandboxKeeping {
  readonly sandboxes: Sandboxes;
  /** Machines outside the pools. */
  readonly heldMachines: () => number;
  start(leftovers: readonly Leftover[]): Promise<void>;
  /** Lets go of running sandboxes and ends what waits. */
  close(): Promise<void>;
}

/** Holds nothing before `start`. */
export function createSandboxes(
  host: SandboxHost,
  parts: SandboxParts,
  options: SandboxOptions & BlankStockOptions,
): SandboxKeeping {
  const { node, clock, log, vmm, connectGuest } = host;
  const bases = new Bases(parts.basesDirectory);
  const stock: BlankStock = new BlankStock(
    { vmm, node, clock, room: () => room, onStarted: host.onStarted },
    options,
  );
  const room = new Room({ ...host.room, shedBlank: () => stock.shed() });
  const restorer = new Restorer({
    clock,
    bases,
    stock,
    copier: parts.copier,
    connectGuest,
    wake: wakeFor(vmm.verdict.accelerator),
    permit: (signal) => permitOf(host.restores, signal),
  });
  const sandboxes = new Sandboxes({
    context: {
      ...{ node, clock, log, bases, restorer, options, networks: host.networks },
      store: parts.store,
      files: new SnapshotFiles(parts.snapshotsDirectory, createFileDigest(parts.digester)),
      copier: parts.copier,
      fingerprint: { ...vmm.fingerprint },
      step: parts.step ?? (() => {}),
      onServing: host.onServing,
    },
    acquire: host.acquire,
    recovery: {
      ...{ vmm, connectGuest, room },
      onTakenOver: (machine, record) => host.onStarted(machine, record.origin.digest as VersionDigest),
    },
    secret: parts.secret,
  });
  return {
    sandboxes,
    heldMachines: () => room.held,
    start: (leftovers) => sandboxes.start(leftovers),
    async close() {
      await sandboxes.close();
      await stock.dispose();
    },
  };
}

/** One of the node's permits to start or load a VMM. */
async function permitOf(restores: RestoreSemaphore, signal: AbortSignal): Promise<Disposable> {
  const { promise, resolve, reject } = Promise.withResolvers<Disposable>();
  const request = restores.request('live', (release) => {
    // One that was granted as its caller left.
    if (signal.aborted) release();
    else resolve({ [Symbol.dispose]: release });
  });
  const onAbort = () => {
    request.cancel();
    reject(
      new GatewayError('cancelled', 'the caller went away while it waited for a restore', {
        component: 'edge',
        cause: signal.reason,
      }),
    );
  };
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    return await promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
