/** The machines of one version on one node: who gets one, when more are made, when they go. */
import { type Clock, GatewayError, type VersionDigest } from '../sdk/index.ts';
import { type AdmissionKind, type Admit, admitAll } from './admission.ts';
import { BringUp, type Failure } from './bring-up.ts';
import type { PoolContext } from './context.ts';
import { Dispatch } from './dispatch.ts';
import type { Lease } from './lease.ts';
import { type MachineEvent, type MachineState, ownedBy } from './machine-state.ts';
import type { PoolObserver } from './observer.ts';
import { type CheckedPoolOptions, checkPoolOptions, type PoolLimits, type PoolOptions } from './options.ts';
import type { MachineSource, PoolMachine } from './port.ts';
import { type AcquireRequest, Reception } from './reception.ts';
import { Refill } from './refill.ts';
import type { RestoreSemaphore } from './semaphore.ts';
import { pickToShed, type SheddableKind, unused } from './shedding.ts';
import { createDemandSizing, createFloorSizing, type Sizing } from './sizing.ts';
import { Slot } from './slot.ts';
import { PoolCounters, type PoolStats } from './stats.ts';
import { Tenure } from './tenure.ts';
import { WaitLine } from './waiters.ts';

export interface PoolDeps {
  /** Makes the machines; the pool owns each from the moment it is handed over. */
  readonly source: MachineSource;
  readonly clock: Clock;
  /** Uniform in [0, 1); for jitter only. */
  readonly random: () => number;
  /** Shared by all pools of the node. */
  readonly restores: RestoreSemaphore;
  /** The node's say on each new VMM. Default: always granted. */
  readonly admit?: Admit | undefined;
  readonly observer?: PoolObserver | undefined;
  /** Called after each place that became free, once the pool has had its turn. */
  readonly onFreed?: (() => void) | undefined;
  /** Default: demand-following, or the floor when `followDemand` is false. */
  readonly sizing?: Sizing | undefined;
}

/** Time `dispose` waits for machines to end before it reports them as left behind. */
const disposeTimeoutMs = 30_000;
/** Pause before the node is asked again for a live place that it refused. */
const admissionRetryMs = 250;
/** Refill pauses this long after machines were shed. */
const shedHoldMs = 10_000;

export class Pool implements AsyncDisposable {
  readonly #deps: PoolDeps;
  #options: CheckedPoolOptions;
  readonly #context: PoolContext;
  readonly #reception: Reception;
  readonly #tenure: Tenure;
  readonly #dispatch: Dispatch;
  readonly #refill: Refill;
  readonly #sizing: Sizing;
  readonly #empty = Promise.withResolvers<void>();
  #isDraining = false;
  #isDisposed = false;
  #isInRound = false;
  #needsRound = false;
  #nodeRefusal: GatewayError | null = null;
  #cancelRetry: (() => void) | null = null;

  constructor(deps: PoolDeps, options: PoolOptions) {
    this.#deps = deps;
    this.#options = checkPoolOptions(options);
    const { source, clock, random, restores, observer = {} } = deps;
    const slots = new Set<Slot>();
    const bringUp = new BringUp({
      source,
      clock,
      restores,
      timeoutMs: () => this.#options.restoreTimeoutMs,
      landed: (slot, durationMs) => this.#landed(slot, durationMs),
      failed: (failure) => this.#failed(failure),
      leasedGone: () => this.#round(),
      freed: (slot) => this.#freed(slot),
      defect: (error) => this.#defect(error),
    });
    this.#context = {
      digest: source.digest,
      clock,
      random,
      observer,
      counters: new PoolCounters(),
      slots,
      line: new WaitLine(),
      bringUp,
      options: () => this.#options,
      round: () => this.#round(),
    };
    this.#sizing =
      deps.sizing ?? (this.#options.followDemand ? createDemandSizing({ clock }) : createFloorSizing());
    this.#reception = new Reception(this.#context, () => this.#nodeRefusal);
    this.#tenure = new Tenure(this.#context);
    this.#dispatch = new Dispatch({
      rules: this.#options,
      slots,
      line: this.#context.line,
      bringUp,
      grant: (waiter, slot) => slot.state.kind === 'serving' && this.#tenure.grant(waiter, slot, slot.state),
      openSlot: () => this.#openSlot('live'),
      taken: () => this.#sizing.taken(),
      isCurrent: (slot) => this.#isCurrent(slot),
    });
    this.#refill = new Refill({
      clock,
      random,
      slots,
      bringUp,
      sizing: this.#sizing,
      limits: () => this.#options,
      openSlot: () => this.#openSlot('refill'),
      poke: () => this.#round(),
    });
    this.#round();
  }

  get digest(): VersionDigest {
    return this.#deps.source.digest;
  }

  /** Machines that exist or are being made; never over `max`. */
  get size(): number {
    return this.#context.slots.size;
  }

  /** Machines of these that are being disposed of: places about to be free. */
  get ending(): number {
    let ending = 0;
    for (const slot of this.#context.slots) if (slot.isEnding) ending += 1;
    return ending;
  }

  /** Acquires that wait without a machine on its way for them. */
  get starving(): number {
    return this.#context.line.unclaimed;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /**
   * A machine to answer on, the fastest that can be had; the caller owns the lease. Rejects with `draining`, `cancelled`,
   * `queue_full`, `queue_timeout`, `restore_failed`, `restore_timeout` or `node_at_capacity`.
   */
  acquire(request: AcquireRequest = {}): Promise<Lease> {
    if (this.#isDraining) {
      return Promise.reject(this.#reception.counted('draining', 'this version is leaving the node'));
    }
    return this.#reception.enter(request);
  }

  /** Takes over a parked machine of an earlier run; false, and still the caller's, when there is no place for it. */
  adopt(machine: PoolMachine): boolean {
    if (this.#isDraining || machine.digest !== this.digest || this.size >= this.#options.max) return false;
    const slot = this.#addSlot();
    this.#context.bringUp.adopt(slot, machine);
    return true;
  }

  /** Changes sizes and bounds; machines above a lowered `max` go as they become idle. Throws `invalid_definition`. */
  setOptions(limits: Partial<PoolLimits>): void {
    const { ready, blank, max, queue, ttl } = { ...this.#options, ...limits };
    this.#options = checkPoolOptions({ ...this.#options, ready, blank, max, queue, ttl });
    this.#round();
  }

  /**
   * Gives up to `count` idle machines back to the node and pauses refill; answers how many. Default order: blanks, then
   * ready ones above the floor.
   */
  shed(count: number, kinds: readonly SheddableKind[] = ['blank', 'ready']): number {
    const picked = pickToShed(this.#context.slots, count, kinds, this.#options.ready);
    if (picked.length > 0) this.#refill.hold(shedHoldMs);
    for (const slot of picked) this.#context.bringUp.discard(slot, 'shed');
    return picked.length;
  }

  /** Tries again what the node had no place for. */
  poke(): void {
    this.#round();
  }

  /** Admits nobody new, serves who waits, lets leases finish, ends the rest; resolves when nothing is left. */
  drain(): Promise<void> {
    this.#isDraining = true;
    this.#refill.stop();
    this.#round();
    return this.#empty.promise;
  }

  /** Ends everything now, leased machines too. Idempotent; answers how many machines had not ended in time. */
  async dispose(): Promise<{ readonly leftBehind: number }> {
    this.#isDraining = true;
    this.#isDisposed = true;
    this.#refill.stop();
    this.#cancelRetry?.();
    this.#reception.refuseAll('draining', 'the node is stopping');
    for (const slot of this.#context.slots) this.#context.bringUp.discard(slot, 'pool_disposed');
    this.#round();
    const timeout = Promise.withResolvers<void>();
    const cancel = this.#deps.clock.schedule(disposeTimeoutMs, timeout.resolve);
    await Promise.race([this.#empty.promise, timeout.promise]);
    cancel();
    return { leftBehind: this.size };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.dispose();
  }

  stats(): PoolStats {
    const { counters, line, slots } = this.#context;
    return counters.snapshot(
      {
        digest: this.digest,
        isDraining: this.#isDraining,
        max: this.#options.max,
        waiting: line.size,
        sizing: this.#refill.decide(),
      },
      slots,
    );
  }

  /** One look at everything. A call from within, by any of the steps, asks for one more when this is done. */
  #round(): void {
    this.#needsRound = true;
    if (this.#isInRound) return;
    this.#isInRound = true;
    try {
      while (this.#needsRound) {
        this.#needsRound = false;
        this.#step();
      }
    } catch (error) {
      this.#defect(error);
    } finally {
      this.#isInRound = false;
    }
  }

  #step(): void {
    const { slots, line, counters, bringUp } = this.#context;
    this.#nodeRefusal = null;
    if (!this.#isDisposed) this.#dispatch.run();
    this.#reception.refuseOverdue();
    if (this.#isDraining) {
      if (line.size === 0) for (const slot of unused(slots)) bringUp.discard(slot, 'drained');
      if (line.size === 0 && slots.size === 0) this.#empty.resolve();
    } else {
      this.#trim();
      this.#refill.run();
    }
    counters.mark(slots.size, line.size);
  }

  /** After `max` was lowered. */
  #trim(): void {
    const { slots, bringUp } = this.#context;
    const excess = slots.size - this.ending - this.#options.max;
    if (excess <= 0) return;
    for (const slot of pickToShed(slots, excess, ['blank', 'ready', 'idle'], 0))
      bringUp.discard(slot, 'over_max');
  }

  #openSlot(kind: AdmissionKind): Slot | null {
    if (this.size >= this.#options.max) {
      if (kind === 'live') this.#makeRoom();
      return null;
    }
    const verdict = (this.#deps.admit ?? admitAll)(kind, this.digest);
    if (verdict.kind === 'granted') return this.#addSlot();
    if (kind === 'live') {
      if (verdict.kind === 'refused') this.#nodeRefusal = verdict.error;
      this.#cancelRetry ??= this.#deps.clock.schedule(admissionRetryMs, () => {
        this.#cancelRetry = null;
        if (!this.#isDisposed) this.#round();
      });
    }
    return null;
  }

  /** At `max`, an idle machine that the first waiter may not use makes room for one that it may. */
  #makeRoom(): void {
    const { slots, bringUp } = this.#context;
    if (this.ending >= this.starving) return;
    for (const slot of pickToShed(slots, 1, ['idle'], 0)) bringUp.discard(slot, 'evicted');
  }

  #addSlot(): Slot {
    const slot = new Slot((changed, from, event) => this.#observe(changed, from, event));
    this.#context.slots.add(slot);
    return slot;
  }

  #landed(slot: Slot, durationMs: number): void {
    const { counters, bringUp } = this.#context;
    const { state } = slot;
    if (state.kind === 'blank') {
      counters.spawns += 1;
      counters.work.spawn.add(durationMs);
      if (slot.claims.size > 0) bringUp.restore(slot, 'live', true);
    } else if (state.kind === 'serving' && state.origin === 'ready') {
      counters.wakes += 1;
      counters.work.wake.add(durationMs);
    } else if (durationMs > 0) {
      counters.restores += 1;
      counters.work.restore.add(durationMs);
      if (state.kind === 'ready') this.#sizing.refilled(durationMs);
    }
    if (this.#isCurrent(slot) && state.kind === 'serving') this.#tenure.begin(slot);
    this.#round();
  }

  /** The digest is compared before a machine is given to anybody, so that a stale one never answers. */
  #isCurrent(slot: Slot): boolean {
    const { state } = slot;
    if ((state.kind !== 'ready' && state.kind !== 'serving') || state.machine.digest === this.digest)
      return true;
    const error = new GatewayError('internal', `machine ${state.machine.id} is of ${state.machine.digest}`);
    this.#context.bringUp.fail(slot, 'stale', error);
    return false;
  }

  #failed(failure: Failure): void {
    this.#context.counters.failed(failure.stage, failure.error, this.#deps.clock.now());
    if (failure.stage !== 'dispose') this.#refill.failed();
    this.#reception.bringUpFailed(failure.claims, failure.stage, failure.error);
    this.#round();
  }

  #freed(slot: Slot): void {
    this.#context.slots.delete(slot);
    this.#round();
    this.#deps.onFreed?.();
  }

  #observe(slot: Slot, from: MachineState, event: MachineEvent): void {
    const { state } = slot;
    const reason = 'reason' in state ? state.reason : null;
    if (event.type === 'discard') this.#context.counters.discarded(event.reason);
    // The machine has moved already; a defect in a metric must not stop what follows from it.
    try {
      this.#context.observer.transition?.({
        digest: this.digest,
        machineId: (ownedBy(state) ?? ownedBy(from))?.id ?? null,
        from: from.kind,
        to: state.kind,
        event: event.type,
        reason,
      });
    } catch (error) {
      this.#defect(error);
    }
  }

  #defect(error: unknown): void {
    this.#context.counters.defects += 1;
    this.#deps.observer?.defect?.(error);
  }
}

/** Makes a pool and starts to fill it to its floor. The caller disposes of it. Throws `invalid_definition`. */
export const createPool = (deps: PoolDeps, options: PoolOptions): Pool => new Pool(deps, options);
