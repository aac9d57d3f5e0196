/** All pools of a node, by version, under one budget of VMs and one budget of restores. */
import { type Clock, GatewayError, type VersionDigest } from '../sdk/index.ts';
import { type Admit, admitAll } from './admission.ts';
import { NodeBudget } from './node-budget.ts';
import type { PoolObserver } from './observer.ts';
import type { PoolOptions } from './options.ts';
import { Pool } from './pool.ts';
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
  readonly #budget: NodeBudget;
  readonly restores: RestoreSemaphore;
  #isClosed = false;

  constructor(deps: PoolsDeps, options: PoolsOptions) {
    this.#deps = deps;
    this.#options = options;
    this.restores = createRestoreSemaphore({ limit: options.concurrentRestores });
    this.#budget = new NodeBudget({
      maxMachines: options.maxMachines,
      used: () => this.size + (deps.otherMachines?.() ?? 0),
      ending: () => this.#sum((pool) => pool.ending),
      refilling: () => this.#sum((pool) => pool.refilling),
      shed: (kinds) => this.shed(1, kinds) > 0,
      admit: deps.admit ?? admitAll,
    });
  }

  /** VMs that exist or are being made, in every pool. */
  get size(): number {
    return this.#sum((pool) => pool.size);
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
    const pool: Pool = new Pool(
      {
        source: version.source,
        clock,
        random,
        observer,
        restores: this.restores,
        admit: (kind) => this.#budget.admit(kind, pool),
        onFreed: () => this.#budget.serveStarved(),
      },
      version.options,
    );
    // It counts in the budget from its first machine on.
    this.#serving.set(version.source.digest, pool);
    pool.poke();
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
    this.#budget.forget(pool);
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

  #sum(figure: (pool: Pool) => number): number {
    let sum = 0;
    for (const pool of this.#all()) sum += figure(pool);
    return sum;
  }

  #all(): Iterable<Pool> {
    return [...this.#serving.values(), ...this.#draining];
  }
}

/** Makes the node's pools; there are none at first. The caller disposes of them. */
export const createPools = (deps: PoolsDeps, options: PoolsOptions): Pools => new Pools(deps, options);
