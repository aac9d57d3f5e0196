/** The places of a pool, bounded by its `max` and by the node: opens them, and makes room when there is none. */
import type { GatewayError } from '../sdk/index.ts';
import type { AdmissionKind, Admit } from './admission.ts';
import type { PoolContext } from './context.ts';
import { pickToShed } from './shedding.ts';
import { Slot, type TransitionListener } from './slot.ts';

/** Pause before the node is asked again for a live place that it refused. */
const admissionRetryMs = 250;

export class Places {
  readonly #pool: PoolContext;
  readonly #admit: Admit;
  readonly #onTransition: TransitionListener;
  #refusal: GatewayError | null = null;
  #cancelRetry: (() => void) | null = null;

  constructor(pool: PoolContext, admit: Admit, onTransition: TransitionListener) {
    this.#pool = pool;
    this.#admit = admit;
    this.#onTransition = onTransition;
  }

  /** Machines that are being disposed of: places about to be free. */
  get ending(): number {
    let ending = 0;
    for (const slot of this.#pool.slots) if (slot.isEnding) ending += 1;
    return ending;
  }

  /** What the node said when it refused a live place since {@link forgetRefusal}, or null. */
  get refusal(): GatewayError | null {
    return this.#refusal;
  }

  forgetRefusal(): void {
    this.#refusal = null;
  }

  /** A new slot that counts at once; null when neither the pool nor the node has a place for it. */
  open(kind: AdmissionKind): Slot | null {
    if (this.#pool.slots.size >= this.#pool.options().max) {
      if (kind === 'live') this.#makeRoom();
      return null;
    }
    const verdict = this.#admit(kind, this.#pool.digest);
    if (verdict.kind === 'granted') return this.add();
    if (kind === 'live') {
      if (verdict.kind === 'refused') this.#refusal = verdict.error;
      this.#cancelRetry ??= this.#pool.clock.schedule(admissionRetryMs, () => {
        this.#cancelRetry = null;
        this.#pool.round();
      });
    }
    return null;
  }

  /** A new slot without asking anybody, for a machine that exists already. */
  add(): Slot {
    const slot = new Slot(this.#onTransition);
    this.#pool.slots.add(slot);
    return slot;
  }

  /** Ends idle machines above `max`, after it was lowered. */
  trim(): void {
    const { slots, bringUp, options } = this.#pool;
    const excess = slots.size - this.ending - options().max;
    if (excess <= 0) return;
    for (const slot of pickToShed(slots, excess, ['blank', 'floor', 'idle'], 0)) {
      bringUp.discard(slot, 'over_max');
    }
  }

  stop(): void {
    this.#cancelRetry?.();
    this.#cancelRetry = null;
  }

  /** At `max`, an idle machine that a waiter may not use makes room for one that it may. */
  #makeRoom(): void {
    const { slots, line, bringUp } = this.#pool;
    if (this.ending >= line.unclaimed) return;
    for (const slot of pickToShed(slots, 1, ['idle'], 0)) bringUp.discard(slot, 'evicted');
  }
}
