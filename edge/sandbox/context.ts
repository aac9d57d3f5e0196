/** What the parts of sandbox keeping share. */
import type { Logger } from 'pino';
import type { Clock, MachineId, NodeId } from '../../sdk/index.ts';
import type { PageCopier } from '../memory/index.ts';
import type { Bases } from './bases.ts';
import type { Entry } from './entry.ts';
import type { LiveMachine } from './live-machine.ts';
import type { SandboxNetworks } from './network.ts';
import type { Past } from './process-watch.ts';
import type { SandboxRecord } from './record.ts';
import type { Restorer } from './restorer.ts';
import type { SnapshotFiles } from './snapshot-files.ts';
import type { SandboxStore } from './store.ts';

export interface SandboxOptions {
  /** How long a pause or a rewind waits for uses, and a new use for the end of a change. */
  readonly drainMs: number;
  /** How long a fork or a snapshot waits for uses; those that go on longer are not harmed by it. */
  readonly forkDrainMs: number;
  /** How often deadlines are looked at. */
  readonly sweepMs: number;
  /** How long the record of an ended sandbox is kept. */
  readonly keepEndedMs: number;
  /** Snapshots that one sandbox keeps beside its pinned ones; the oldest go first. */
  readonly snapshotsPerSandbox: number;
  /** Bytes of all snapshots of the node; the oldest that are not pinned go first. */
  readonly snapshotBytes: number;
}

export interface SandboxContext {
  readonly node: NodeId;
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: SandboxStore;
  readonly files: SnapshotFiles;
  readonly bases: Bases;
  readonly copier: PageCopier;
  readonly restorer: Restorer;
  readonly networks: SandboxNetworks;
  /** What snapshots of this node are made with. */
  readonly fingerprint: Readonly<Record<string, string>>;
  readonly options: SandboxOptions;
  /** Called between any two steps that a crash may part, with a name such as `pause.saved`; tests die there. */
  readonly step: (name: string) => void | Promise<void>;
  /** A machine serves a sandbox from now on; for listings. */
  readonly onServing: (id: MachineId) => void;
  /** Makes a sandbox known that was written down; from now on the end of its machine is noticed. */
  readonly adopt: (record: SandboxRecord, live: LiveMachine, past: Past['kind']) => Entry;
  /** Notices the end of a machine that an entry now has, and of the processes in it. */
  readonly watch: (entry: Entry, live: LiveMachine, past: Past['kind']) => void;
  /** A sandbox stands on another snapshot in the tree, since the one it stood on is dropped. */
  readonly rebase: (id: string, from: string, to: string | null) => void;
  /** A snapshot has gone or come: what nobody needs any more is removed. */
  readonly collect: () => Promise<void>;
}
