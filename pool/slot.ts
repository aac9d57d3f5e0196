/** One place of a pool's `max`: the machine in it, its state and what hangs on it. */

import type { MachineId } from '../sdk/index.ts';
import { type MachineEvent, type MachineState, ownedBy, transition } from './machine-state.ts';
import type { BlankMachine, PoolMachine } from './port.ts';
import type { PermitRequest } from './semaphore.ts';
import type { Waiter } from './waiters.ts';

/** Told of every transition, after it. */
export type TransitionListener = (slot: Slot, from: MachineState, event: MachineEvent) => void;

/** `work`: the budget of the source's current operation. */
export type SlotTimer = 'idle' | 'lifetime' | 'work';

export class Slot {
  #state: MachineState = { kind: 'spawning' };
  #machineId: MachineId | null = null;
  readonly #onTransition: TransitionListener;
  /** Waiters this machine is being brought up for. */
  readonly claims = new Set<Waiter>();
  /** Ends the source's current operation when the slot is discarded. */
  readonly abort = new AbortController();
  /** The place in the line for a restore permit, while it has one. */
  permit: PermitRequest | null = null;
  /** The source's current operation. Never rejects; resolves with what it made if the slot was discarded meanwhile. */
  work: Promise<BlankMachine | PoolMachine | undefined> = Promise.resolve(undefined);
  /** Milliseconds spent on spawning, restoring and waking since it last was a blank or ready. */
  bringUpMs = 0;
  /** Whether the work for its present bring-up has begun, rather than waiting for a permit. */
  hasBegun = false;
  /** When it began to serve, and when its last invocation ended; monotonic milliseconds. */
  servingAt = 0;
  idleAt = 0;
  readonly #timers = new Map<SlotTimer, () => void>();

  constructor(onTransition: TransitionListener) {
    this.#onTransition = onTransition;
  }

  get state(): MachineState {
    return this.#state;
  }

  /** The machine in it, the last one once that has gone; null before there is one. */
  get machineId(): MachineId | null {
    return this.#machineId;
  }

  get isEnding(): boolean {
    return this.#state.kind === 'disposing' || this.#state.kind === 'disposed';
  }

  apply(event: MachineEvent): void {
    const from = this.#state;
    this.#state = transition(from, event);
    this.#machineId = ownedBy(this.#state)?.id ?? this.#machineId;
    this.#onTransition(this, from, event);
  }

  /** Whether this slot still holds that very machine, so that late news about an earlier one is ignored. */
  holds(machine: BlankMachine | PoolMachine): boolean {
    return ownedBy(this.#state) === machine;
  }

  /** Replaces a timer; without `cancel` only stops it. */
  setTimer(name: SlotTimer, cancel?: () => void): void {
    this.#timers.get(name)?.();
    if (cancel === undefined) this.#timers.delete(name);
    else this.#timers.set(name, cancel);
  }

  stopTimers(): void {
    for (const cancel of this.#timers.values()) cancel();
    this.#timers.clear();
  }
}
