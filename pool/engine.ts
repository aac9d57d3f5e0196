/** Puts the parts of one pool together and runs its rounds: whatever happens, everything is looked at again. */
import { type Clock, GatewayError } from '../sdk/index.ts';
import { type Admit, admitAll } from './admission.ts';
import { BringUp, type Failure } from './bring-up.ts';
import type { PoolContext } from './context.ts';
import { Dispatch } from './dispatch.ts';
import type { MachineEvent, MachineState } from './machine-state.ts';
import { guardObserver, type PoolObserver } from './observer.ts';
import type { CheckedPoolOptions } from './options.ts';
import { Places } from './places.ts';
import type { MachineSource } from './port.ts';
import { Reception } from './reception.ts';
import { Refill } from './refill.ts';
import type { RestoreSemaphore } from './semaphore.ts';
import { unused } from './shedding.ts';
import { createDemandSizing, createFloorSizing, type Sizing } from './sizing.ts';
import type { Slot } from './slot.ts';
import { PoolCounters } from './stats.ts';
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

/** `open` admits; `draining` serves who waits and ends the rest; `disposed` ends everything. */
export type PoolPhase = 'open' | 'draining' | 'disposed';

export class PoolEngine {
  readonly #deps: PoolDeps;
  readonly #dispatch: Dispatch;
  readonly #tenure: Tenure;
  readonly #sizing: Sizing;
  readonly #empty = Promise.withResolvers<void>();
  readonly context: PoolContext;
  readonly reception: Reception;
  readonly places: Places;
  readonly refill: Refill;
  /** Replaced as a whole; call {@link round} afterwards. */
  options: CheckedPoolOptions;
  phase: PoolPhase = 'open';
  #isInRound = false;
  #needsRound = false;

  constructor(deps: PoolDeps, options: CheckedPoolOptions) {
    this.#deps = deps;
    this.options = options;
    const { source, clock, random } = deps;
    const defect = (error: unknown) => this.#defect(error);
    const bringUp = new BringUp({
      source,
      clock,
      restores: deps.restores,
      timeoutMs: () => this.options.restoreTimeoutMs,
      landed: (slot, durationMs) => this.#landed(slot, durationMs),
      failed: (failure) => this.#failed(failure),
      leasedGone: () => this.round(),
      freed: (slot) => this.#freed(slot),
      defect,
    });
    this.context = {
      digest: source.digest,
      clock,
      random,
      observer: guardObserver(deps.observer ?? {}, defect),
      counters: new PoolCounters(),
      slots: new Set(),
      line: new WaitLine(),
      bringUp,
      options: () => this.options,
      round: () => this.round(),
    };
    this.#sizing =
      deps.sizing ?? (options.followDemand ? createDemandSizing({ clock }) : createFloorSizing());
    this.places = new Places(this.context, deps.admit ?? admitAll, (slot, from, event) =>
      this.#observe(slot, from, event),
    );
    this.reception = new Reception(this.context, () => this.places.refusal);
    this.#tenure = new Tenure(this.context);
    this.#dispatch = new Dispatch({
      rules: options,
      slots: this.context.slots,
      line: this.context.line,
      bringUp,
      grant: (waiter, slot) => slot.state.kind === 'serving' && this.#tenure.grant(waiter, slot, slot.state),
      openSlot: () => this.places.open('live'),
      taken: () => this.#sizing.taken(),
      isCurrent: (slot) => this.#isCurrent(slot),
    });
    this.refill = new Refill({
      clock,
      random,
      slots: this.context.slots,
      bringUp,
      sizing: this.#sizing,
      limits: () => this.options,
      openSlot: () => this.places.open('refill'),
      poke: () => this.round(),
    });
  }

  /** Resolves when a pool that is no longer open has neither machines nor waiters. */
  get empty(): Promise<void> {
    return this.#empty.promise;
  }

  /** One look at everything. A call from within, by any of the steps, asks for one more when this one is done. */
  round(): void {
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
    const { slots, line, counters, bringUp } = this.context;
    this.places.forgetRefusal();
    if (this.phase !== 'disposed') this.#dispatch.run();
    this.reception.refuseOverdue();
    if (this.phase === 'open') {
      this.places.trim();
      this.refill.run();
    } else if (line.size === 0) {
      for (const slot of unused(slots)) bringUp.discard(slot, 'drained');
      if (slots.size === 0) this.#empty.resolve();
    }
    counters.mark(slots.size, line.size);
  }

  #landed(slot: Slot, durationMs: number): void {
    const { counters, bringUp } = this.context;
    const { state } = slot;
    if (state.kind === 'blank') {
      counters.landed('spawn', durationMs);
      if (slot.claims.size > 0) bringUp.restore(slot, 'live', true);
    } else if (state.kind === 'serving' && state.origin === 'ready') {
      counters.landed('wake', durationMs);
    } else {
      counters.landed('restore', durationMs);
      const spawnMs = counters.work.spawn.value() ?? 0;
      if (state.kind === 'ready') this.#sizing.refilled(spawnMs + durationMs);
    }
    if (this.#isCurrent(slot) && state.kind === 'serving') this.#tenure.begin(slot);
    this.round();
  }

  /** The digest is compared before a machine is given to anybody, so that a stale one never answers. */
  #isCurrent(slot: Slot): boolean {
    const { digest, bringUp } = this.context;
    const { state } = slot;
    if ((state.kind !== 'ready' && state.kind !== 'serving') || state.machine.digest === digest) return true;
    const error = new GatewayError('internal', `machine ${state.machine.id} is of ${state.machine.digest}`);
    bringUp.fail(slot, 'stale', error);
    return false;
  }

  #failed({ stage, error, claims }: Failure): void {
    this.context.counters.failed(stage, error, this.#deps.clock.now());
    if (stage !== 'dispose') this.refill.failed();
    this.reception.bringUpFailed(claims, stage, error);
    this.round();
  }

  #freed(slot: Slot): void {
    this.context.slots.delete(slot);
    this.round();
    this.#deps.onFreed?.();
  }

  #observe(slot: Slot, from: MachineState, event: MachineEvent): void {
    const { counters, observer, digest } = this.context;
    const { state } = slot;
    if (event.type === 'discard') counters.discarded(event.reason);
    observer.transition({
      digest,
      machineId: slot.machineId,
      from: from.kind,
      to: state.kind,
      event: event.type,
      reason: 'reason' in state ? state.reason : null,
    });
  }

  #defect(error: unknown): void {
    this.context.counters.defects += 1;
    this.#deps.observer?.defect?.(error);
  }
}
