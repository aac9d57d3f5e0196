/** All pools of a node, by version, under one budget of VMs and one budget of restores. */
import { type Clock, GatewayError, type VersionDigest } from '../sdk/index.ts';
import type { AdmissionKind, AdmissionVerdict, Admit } from './admission.ts';
import type { PoolObserver } from './observer.ts';
import type { PoolOptions } from './options.ts';
import { createPool, type Pool } from './pool.ts';
import type { MachineSource } from './port.ts';
import { createRestoreSemaphore, type RestoreSemaphore } from './semaphore.ts';
import type { SheddableKind } from './shedding.ts';
import type { PoolStats } from './stats.ts';

export interface PoolsDeps {
  readonly clock: Clock;
  readonly random: () => number;
  readonly observer?: PoolObserver | undefined;
  /** A further say on each new VMM, such as memory or disk; asked when the VM budget has a place. */
  readonly admit?: Admit | undefined;
  /** VMs outside the pools that count against the budget, such as forks. Default none. */
  readonly otherMachines?: (() => number) | undefined;
}

export interface PoolsOptions {
  /** VMs on this node, whatever their state. */
  readonly maxMachines: number;
  /** VMMs being started or loaded at once. */
  readonly concurrentRestores: number;
}

export interface PoolsStats {
  readonly machines: number;
  readonly maxMachines: number;
  readonly restores: ReturnType<RestoreSemaphore['stats']>;
  readonly pools: readonly PoolStats[];
}

/** A version that should be served, and how. */
export interface ServedVersion {
  readonly source: MachineSource;
  readonly options: PoolOptions;
}

export class Pools implements AsyncDisposable {
  readonly #deps: PoolsDeps;
  readonly #options: PoolsOptions;
  readonly #serving = new Map<VersionDigest, Pool>();
  readonly #draining = new Set<Pool>();
  /** Pools with an invocation that waits for a place on the node, the longest waiting first. */
  readonly #starved = new Set<Pool>();
  readonly restores: RestoreSemaphore;
  #isClosed = false;

  constructor(deps: PoolsDeps, options: PoolsOptions) {
    this.#deps = deps;
    this.#options = options;
    this.restores = createRestoreSemaphore({ limit: options.concurrentRestores });
  }

  /** VMs that exist or are being made, in every pool. */
  get size(): number {
    let size = 0;
    for (const pool of this.#all()) size += pool.size;
    return size;
  }

  /** The pool that serves a version. */
  get(digest: VersionDigest): Pool | undefined {
    return this.#serving.get(digest);
  }

  /** The pool that serves a version, made if there is none. Throws `draining` on a node that stops. */
  getOrCreate(version: ServedVersion): Pool {
    const known = this.#serving.get(version.source.digest);
    if (known !== undefined) return known;
    if (this.#isClosed) throw new GatewayError('draining', 'the node is stopping', { component: 'pool' });
    const { clock, random, observer } = this.#deps;
    let self: Pool | undefined;
    const pool = createPool(
      {
        source: version.source,
        clock,
        random,
        observer,
        restores: this.restores,
        admit: (kind, digest) => this.#admit(kind, digest, self),
        onFreed: () => this.#freed(),
      },
      version.options,
    );
    self = pool;
    this.#serving.set(version.source.digest, pool);
    return pool;
  }

  /** Makes the pools of these versions, updates the ones there are, and drains all others. */
  setServing(versions: readonly ServedVersion[]): void {
    const wanted = new Set(versions.map((version) => version.source.digest));
    for (const digest of [...this.#serving.keys()]) if (!wanted.has(digest)) void this.drain(digest);
    for (const version of versions) {
      const known = this.#serving.get(version.source.digest);
      if (known === undefined) this.getOrCreate(version);
      else known.setOptions(version.options);
    }
  }

  /**
   * Lets the pool of one version run dry; resolves when it has. The version may be served again at once, by a new
   * pool.
   */
  async drain(digest: VersionDigest): Promise<void> {
    const pool = this.#serving.get(digest);
    if (pool === undefined) return;
    this.#serving.delete(digest);
    this.#draining.add(pool);
    await pool.drain();
    this.#draining.delete(pool);
    this.#starved.delete(pool);
  }

  /** Makes no new pools and lets all run dry. */
  async drainAll(): Promise<void> {
    this.#isClosed = true;
    const leaving = [...this.#draining].map((pool) => pool.drain());
    await Promise.all([...leaving, ...[...this.#serving.keys()].map((digest) => this.drain(digest))]);
  }

  /** Ends every machine now; answers how many had not ended in time. */
  async dispose(): Promise<{ readonly leftBehind: number }> {
    this.#isClosed = true;
    const results = await Promise.all([...this.#all()].map((pool) => pool.dispose()));
    this.#serving.clear();
    this.#draining.clear();
    this.#starved.clear();
    return { leftBehind: results.reduce((sum, { leftBehind }) => sum + leftBehind, 0) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.dispose();
  }

  /** Frees up to `count` idle machines across all pools, one kind at a time; answers how many. For memory pressure. */
  shed(count: number, kinds: readonly SheddableKind[] = ['blank', 'ready']): number {
    let shed = 0;
    for (const kind of kinds) {
      for (const pool of this.#all()) {
        if (shed >= count) return shed;
        shed += pool.shed(count - shed, [kind]);
      }
    }
    return shed;
  }

  stats(): PoolsStats {
    return {
      machines: this.size,
      maxMachines: this.#options.maxMachines,
      restores: this.restores.stats(),
      pools: [...this.#all()].map((pool) => pool.stats()),
    };
  }

  #all(): Iterable<Pool> {
    return [...this.#serving.values(), ...this.#draining];
  }

  /**
   * Refill is refused when the node is full. An invocation first has idle machines elsewhere given up: blanks, ready
   * ones above their floor, then machines that only wait to be reused.
   */
  #admit(kind: AdmissionKind, digest: VersionDigest, pool: Pool | undefined): AdmissionVerdict {
    const { maxMachines } = this.#options;
    const used = this.size + (this.#deps.otherMachines?.() ?? 0);
    if (used < maxMachines) return this.#deps.admit?.(kind, digest) ?? { kind: 'granted' };
    if (kind === 'live' && pool !== undefined) {
      this.#starved.add(pool);
      if (this.#isMakingRoom() || this.shed(1, ['blank', 'ready', 'idle']) > 0) return { kind: 'pending' };
    }
    const error = new GatewayError(
      'node_at_capacity',
      `all ${maxMachines} machines of this node are in use`,
      {
        component: 'pool',
        extra: { limit: maxMachines, used, knob: 'maxMachines' },
      },
    );
    return { kind: 'refused', error };
  }

  /** Whether as many machines are on their way out as invocations wait for a place, so that no more need be shed. */
  #isMakingRoom(): boolean {
    let ending = 0;
    let starving = 0;
    for (const pool of this.#all()) ending += pool.ending;
    for (const pool of this.#starved) starving += pool.starving;
    return ending > 0 && ending >= starving;
  }

  /** A place is free: those who starve get it in turn, and ask again if it wasn't enough. */
  #freed(): void {
    const starved = [...this.#starved];
    this.#starved.clear();
    for (const pool of starved) pool.poke();
  }
}

/** Makes the node's pools; there are none at first. The caller disposes of them. */
export const createPools = (deps: PoolsDeps, options: PoolsOptions): Pools => new Pools(deps, options);
