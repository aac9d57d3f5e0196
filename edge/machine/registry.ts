import type { PoolTransition } from '../../pool/index.ts';
import type { MachineId, MachineInfo, NodeId, VersionDigest } from '../../sdk/index.ts';
import type { ServedVersion } from '../client/port.ts';
import type { VmmProcess } from '../vmm/port.ts';

interface Entry {
  readonly vmm: VmmProcess;
  readonly digest: VersionDigest;
  readonly startedAt: number;
  state: MachineInfo['state'];
  inFlight: number;
  invocations: number;
}

export interface RegistryDeps {
  readonly node: NodeId;
  /** What a digest is called; undefined for versions that are not served. */
  readonly nameOf: (digest: VersionDigest) => Pick<ServedVersion, 'template' | 'version'> | undefined;
  /** Private bytes of the guest's RAM, or null when they can't be read. */
  readonly privateBytes: (vmm: VmmProcess) => Promise<number | null>;
}

const states: Readonly<Record<string, MachineInfo['state']>> = {
  spawning: 'spawning',
  blank: 'blank',
  queued: 'restoring',
  restoring: 'restoring',
  ready: 'ready',
  waking: 'waking',
  serving: 'serving',
  disposing: 'disposing',
};

/** Every VMM of this edge with what it is doing: for listings, metrics and the leak check. Decides nothing. */
export class MachineRegistry {
  readonly #deps: RegistryDeps;
  readonly #entries = new Map<MachineId, Entry>();

  constructor(deps: RegistryDeps) {
    this.#deps = deps;
  }

  /** Lists a VMM from now until it ended. */
  add(vmm: VmmProcess, digest: VersionDigest, startedAt: number): void {
    this.#entries.set(vmm.id, { vmm, digest, startedAt, state: 'blank', inFlight: 0, invocations: 0 });
    void vmm.exited.then(() => this.#entries.delete(vmm.id));
  }

  /** To be given to the pools as their observer's `transition`. */
  transition(change: PoolTransition): void {
    const entry = change.machineId === null ? undefined : this.#entries.get(change.machineId);
    const state = states[change.to];
    if (entry !== undefined && state !== undefined) entry.state = state;
  }

  /** A machine outside the pools serves from now on. */
  serves(id: MachineId): void {
    const entry = this.#entries.get(id);
    if (entry !== undefined) entry.state = 'serving';
  }

  /** An invocation began on this machine; the answer ends it. */
  invocation(id: MachineId): () => void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return () => {};
    entry.inFlight++;
    entry.invocations++;
    return () => {
      entry.inFlight--;
    };
  }

  get size(): number {
    return this.#entries.size;
  }

  async list(): Promise<MachineInfo[]> {
    const rows = [...this.#entries].map(async ([id, entry]): Promise<MachineInfo | null> => {
      const name = this.#deps.nameOf(entry.digest);
      if (name === undefined) return null;
      return {
        id,
        node: this.#deps.node,
        template: name.template,
        version: name.version,
        digest: entry.digest,
        state: entry.state,
        startedAt: entry.startedAt,
        invocations: entry.invocations,
        inFlight: entry.inFlight,
        pid: entry.vmm.pid,
        privateBytes: await this.#deps.privateBytes(entry.vmm).catch(() => null),
      };
    });
    return (await Promise.all(rows)).filter((row) => row !== null);
  }
}
