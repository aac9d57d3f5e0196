import type { Pool, PoolOptions, Pools, PoolTransition } from '../../pool/index.ts';
import { GatewayError, shortDigest, type VersionDigest } from '../../sdk/index.ts';
import type { Inspection, LoadedVersion, TemplateDefinition } from '../../templates/index.ts';
import { readRestorable } from '../build/snapshot-host.ts';
import type { ServedVersion } from '../client/port.ts';
import { toMessage } from '../errors.ts';
import { createMachineSource, type SourceDeps } from '../machine/source.ts';

export interface ServingSetDeps {
  readonly pools: Pools;
  readonly source: SourceDeps;
  /** Whether the files of a version can be restored here; reads every byte of them. */
  readonly inspect: (digest: VersionDigest) => Promise<Inspection>;
  /** Makes the files of a version anew from its archived source; resolves when they are verified. */
  readonly rebuild: (digest: VersionDigest, reason: string) => Promise<void>;
  readonly onError: (digest: VersionDigest, error: unknown) => void;
}

/** What is known of a version that shall be served. */
type Entry = { readonly served: ServedVersion } & (
  | { readonly state: 'preparing'; readonly done: Promise<Served> }
  | { readonly state: 'rebuilding'; readonly reason: string }
  | { readonly state: 'failed'; readonly error: GatewayError }
  | Served
);
interface Served {
  readonly state: 'serving';
  readonly pool: Pool;
  readonly definition: TemplateDefinition;
}

/** What a definition says about its pool, in the pool's terms. */
function poolOptions(definition: TemplateDefinition): PoolOptions {
  const { pool, reuse, admission, ttl, maxInvocations } = definition;
  return {
    ...pool,
    reuse,
    concurrency: admission.concurrency,
    maxInvocations,
    queue: admission.queue,
    ttl: { idleMs: ttl.idleMs, lifetimeMs: ttl.lifetimeMs },
  };
}

/**
 * The versions this edge keeps warm. A version whose files are damaged or of another host is rebuilt in the background and
 * answers `version_unavailable` meanwhile; the reason is shown wherever it is asked for.
 */
export class ServingSet {
  readonly #deps: ServingSetDeps;
  readonly #entries = new Map<VersionDigest, Entry>();
  readonly #watchers = new Set<() => void>();

  constructor(deps: ServingSetDeps) {
    this.#deps = deps;
  }

  /** To be given to the pools as their observer's `transition`. */
  transition(_change: PoolTransition): void {
    // Not now: the pool is in the middle of its round, and its numbers settle at the end of it.
    queueMicrotask(() => {
      for (const watcher of this.#watchers) watcher();
    });
  }

  nameOf(digest: VersionDigest): ServedVersion | undefined {
    return this.#entries.get(digest)?.served;
  }

  get size(): number {
    return this.#entries.size;
  }

  *serving(): Generator<{
    readonly served: ServedVersion;
    readonly pool: Pool;
    readonly definition: TemplateDefinition;
  }> {
    for (const entry of this.#entries.values()) {
      if (entry.state === 'serving')
        yield { served: entry.served, pool: entry.pool, definition: entry.definition };
    }
  }

  /** The pool of a version. Throws `version_unavailable` while it is rebuilt or failed, `version_not_found` when it is not served. */
  async find(digest: VersionDigest): Promise<Served> {
    const entry = this.#entries.get(digest);
    if (entry === undefined)
      throw new GatewayError(
        'version_not_found',
        `version ${shortDigest(digest)} is not served by this node`,
        { component: 'edge' },
      );
    switch (entry.state) {
      case 'serving':
        return entry;
      case 'preparing':
        return await entry.done;
      case 'rebuilding':
        throw new GatewayError(
          'version_unavailable',
          `${entry.served.template} ${entry.served.version} is being rebuilt: ${entry.reason}`,
          {
            component: 'edge',
            retryAfterSeconds: 10,
          },
        );
      case 'failed':
        throw entry.error;
    }
  }

  /** Declares everything that shall be warm; what is not named drains. Resolves when each has a ready machine, or can't have one. */
  async set(versions: readonly ServedVersion[]): Promise<{ digest: VersionDigest; error: string | null }[]> {
    const wanted = new Map(versions.map((version) => [version.digest, version]));
    for (const digest of [...this.#entries.keys()]) {
      if (wanted.has(digest)) continue;
      this.#entries.delete(digest);
      void this.#deps.pools.drain(digest);
    }
    return Promise.all(
      [...wanted.values()].map(async (served) => {
        const known = this.#entries.get(served.digest);
        if (known === undefined || known.state === 'failed') this.#prepare(served);
        else this.#entries.set(served.digest, { ...known, served });
        try {
          await this.#firstReady(await this.find(served.digest));
          return { digest: served.digest, error: null };
        } catch (error) {
          return { digest: served.digest, error: toMessage(error) };
        }
      }),
    );
  }

  #prepare(served: ServedVersion): void {
    const done = this.#load(served);
    this.#entries.set(served.digest, { served, state: 'preparing', done });
    done.then(
      (ready) => this.#settle(served, ready),
      (thrown) => {
        this.#deps.onError(served.digest, thrown);
        const error =
          thrown instanceof GatewayError
            ? thrown
            : new GatewayError(
                'version_unavailable',
                `${served.template} ${served.version}: ${toMessage(thrown)}`,
                { component: 'edge', cause: thrown },
              );
        if (this.#entries.get(served.digest)?.state === 'preparing')
          this.#settle(served, { state: 'failed', error });
      },
    );
  }

  /** Only while the version is still wanted; otherwise its new pool goes at once. */
  #settle(
    served: ServedVersion,
    outcome: Served | { readonly state: 'failed'; readonly error: GatewayError },
  ): void {
    const current = this.#entries.get(served.digest);
    if (current === undefined) void this.#deps.pools.drain(served.digest);
    else this.#entries.set(served.digest, { served: current.served, ...outcome });
  }

  async #load(served: ServedVersion): Promise<Served> {
    const inspection = await this.#deps.inspect(served.digest);
    if (inspection.state === 'usable') return this.#open(inspection.version);
    if (inspection.state === 'absent') {
      throw new GatewayError(
        'version_not_found',
        `${served.template} ${served.version} is not on this host`,
        { component: 'edge' },
      );
    }
    this.#entries.set(served.digest, { served, state: 'rebuilding', reason: inspection.reason });
    void this.#rebuild(served, inspection.reason);
    return this.find(served.digest);
  }

  async #rebuild(served: ServedVersion, reason: string): Promise<void> {
    try {
      await this.#deps.rebuild(served.digest, reason);
      const inspection = await this.#deps.inspect(served.digest);
      if (inspection.state !== 'usable')
        throw new Error(
          `still unusable after a rebuild: ${inspection.state === 'absent' ? 'absent' : inspection.reason}`,
        );
      this.#settle(served, await this.#open(inspection.version));
    } catch (cause) {
      this.#deps.onError(served.digest, cause);
      const error = new GatewayError(
        'version_unavailable',
        `${served.template} ${served.version} could not be rebuilt (${reason}): ${toMessage(cause)}`,
        {
          component: 'edge',
          cause,
        },
      );
      this.#settle(served, { state: 'failed', error });
    }
  }

  async #open(version: LoadedVersion): Promise<Served> {
    const restorable = await readRestorable(
      version.digest,
      version.definition,
      version.image,
      version.directory,
    );
    const pool = this.#deps.pools.getOrCreate({
      source: createMachineSource(this.#deps.source, restorable),
      options: poolOptions(version.definition),
    });
    return { state: 'serving', pool, definition: version.definition };
  }

  /** Resolves once the pool has a machine to give, and rejects when its first attempts fail. */
  #firstReady({ pool, definition }: Served): Promise<void> {
    if (definition.pool.ready === 0) return Promise.resolve();
    const failuresBefore = pool.stats().lastFailure;
    return new Promise((resolve, reject) => {
      const look = () => {
        const { machines, lastFailure, isDraining } = pool.stats();
        const isReady = machines.ready + machines.waking + machines.serving > 0;
        if (!isReady && !isDraining && lastFailure === failuresBefore) return;
        this.#watchers.delete(look);
        if (isReady) resolve();
        else
          reject(
            new Error(isDraining ? 'no longer served' : (lastFailure?.message ?? 'no machine became ready')),
          );
      };
      this.#watchers.add(look);
      look();
    });
  }
}
