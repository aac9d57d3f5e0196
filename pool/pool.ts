/** The machines of one version on one node: who gets one, when more are made, when they go. */
import type { VersionDigest } from '../sdk/index.ts';
import { type PoolDeps, PoolEngine } from './engine.ts';
import type { Lease } from './lease.ts';
import { checkPoolOptions, type PoolLimits, type PoolOptions } from './options.ts';
import type { PoolMachine } from './port.ts';
import type { AcquireRequest } from './reception.ts';
import { pickToShed, type SheddableKind } from './shedding.ts';
import type { PoolStats } from './stats.ts';

/** Time `dispose` waits for machines to end before it reports them as left behind. */
const disposeTimeoutMs = 30_000;
/** Refill pauses this long after machines were shed. */
const shedHoldMs = 10_000;

/** Made by {@link createPool}; holds nothing until its first {@link Pool.poke}. */
export class Pool implements AsyncDisposable {
  readonly #deps: PoolDeps;
  readonly #engine: PoolEngine;

  constructor(deps: PoolDeps, options: PoolOptions) {
    this.#deps = deps;
    this.#engine = new PoolEngine(deps, checkPoolOptions(options));
  }

  get digest(): VersionDigest {
    return this.#deps.source.digest;
  }

  /** Machines that exist or are being made; never over `max`. */
  get size(): number {
    return this.#engine.context.slots.size;
  }

  /** Machines of these that are being disposed of: places about to be free. */
  get ending(): number {
    return this.#engine.places.ending;
  }

  /** Machines that refill is making: soon idle ones. */
  get refilling(): number {
    return this.#engine.refill.underway;
  }

  /** Acquires that wait without a machine on its way for them. */
  get starving(): number {
    return this.#engine.context.line.unclaimed;
  }

  /** Leases out and acquires waiting, as a share of what `max` machines can answer at once. */
  get load(): number {
    const { context, options } = this.#engine;
    const places = options.max * (options.reuse === 'never' ? 1 : options.concurrency);
    return (context.counters.leased + context.line.size) / places;
  }

  get isDraining(): boolean {
    return this.#engine.phase !== 'open';
  }

  /**
   * A machine to answer on, the fastest that can be had; the caller owns the lease. Rejects with `draining`, `cancelled`,
   * `queue_full`, `queue_timeout`, `restore_failed`, `restore_timeout` or `node_at_capacity`.
   */
  acquire(request: AcquireRequest = {}): Promise<Lease> {
    const { reception } = this.#engine;
    if (!this.isDraining) return reception.enter(request);
    return Promise.reject(reception.counted('draining', 'this version is leaving the node'));
  }

  /** Takes over a parked machine of an earlier run; false, and still the caller's, when there is no place for it. */
  adopt(machine: PoolMachine): boolean {
    const { context, places, options } = this.#engine;
    if (this.isDraining || machine.digest !== this.digest || this.size >= options.max) return false;
    context.bringUp.adopt(places.add(), machine);
    this.#engine.round();
    return true;
  }

  /** Changes sizes and bounds; machines above a lowered `max` go as they become idle. Throws `invalid_definition`. */
  setOptions(limits: Partial<PoolLimits>): void {
    const { ready, windows, blank, max, queue, ttl } = { ...this.#engine.options, ...limits };
    const changed = { ready, windows, blank, max, queue, ttl };
    this.#engine.options = checkPoolOptions({ ...this.#engine.options, ...changed });
    this.#engine.round();
  }

  /**
   * Gives up to `count` idle machines back to the node and pauses refill; answers how many. Default order: blanks, then
   * ready ones above the floor.
   */
  shed(count: number, kinds: readonly SheddableKind[] = ['blank', 'ready']): number {
    const { context, refill } = this.#engine;
    const picked = pickToShed(context.slots, count, kinds, refill.floor);
    if (picked.length > 0) refill.hold(shedHoldMs);
    for (const slot of picked) context.bringUp.discard(slot, 'shed');
    return picked.length;
  }

  /** Looks at everything again, such as what the node had no place for. */
  poke(): void {
    this.#engine.round();
  }

  /** Admits nobody new, serves who waits, lets leases finish, ends the rest; resolves when nothing is left. */
  drain(): Promise<void> {
    if (this.#engine.phase === 'open') this.#engine.phase = 'draining';
    this.#engine.refill.stop();
    this.#engine.round();
    return this.#engine.empty;
  }

  /** Ends everything now, leased machines too. Idempotent; answers how many machines had not ended in time. */
  async dispose(): Promise<{ readonly leftBehind: number }> {
    const { context, reception, refill, places } = this.#engine;
    this.#engine.phase = 'disposed';
    refill.stop();
    places.stop();
    reception.refuseAll('draining', 'the node is stopping');
    for (const slot of context.slots) context.bringUp.discard(slot, 'pool_disposed');
    this.#engine.round();
    const timeout = Promise.withResolvers<void>();
    const cancel = this.#deps.clock.schedule(disposeTimeoutMs, timeout.resolve);
    await Promise.race([this.#engine.empty, timeout.promise]);
    cancel();
    return { leftBehind: this.size };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.dispose();
  }

  /** A copy of the pool's figures. */
  stats(): PoolStats {
    const { context, options, refill } = this.#engine;
    return context.counters.snapshot(
      {
        digest: this.digest,
        isDraining: this.isDraining,
        max: options.max,
        waiting: context.line.size,
        sizing: refill.decide(),
      },
      context.slots,
    );
  }
}

/** Makes a pool and starts to fill it to its floor. The caller disposes of it. Throws `invalid_definition`. */
export function createPool(deps: PoolDeps, options: PoolOptions): Pool {
  const pool = new Pool(deps, options);
  pool.poke();
  return pool;
}
