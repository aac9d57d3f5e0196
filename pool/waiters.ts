/** The line of acquires which have no machine yet. */
import type { GatewayError } from '../sdk/index.ts';
import type { Lease } from './lease.ts';
import type { Demand } from './machine-state.ts';
import type { Slot } from './slot.ts';

/** One acquire that waits. Settled exactly once, by {@link WaitLine.grant} or {@link WaitLine.refuse}. */
export interface Waiter {
  readonly demand: Demand;
  /** A sandbox's hold; its length says nothing about service times. */
  readonly isExclusive: boolean;
  /** Monotonic milliseconds. */
  readonly arrivedAt: number;
  /** The machine being brought up for it. Whichever machine is there first serves it all the same. */
  claim: Slot | null;
  /** Bring-ups which failed under it. */
  failures: number;
  lastError: unknown;
  /** Its queue time is over; it lives on only as long as work for it goes on. */
  isOverdue: boolean;
  readonly resolve: (lease: Lease) => void;
  readonly reject: (error: GatewayError) => void;
  /** Timers and the abort listener. */
  readonly cleanups: (() => void)[];
}

/** First-come order is the order of insertion. Claims are kept on both sides, here and on the slot. */
export class WaitLine implements Iterable<Waiter> {
  readonly #line = new Set<Waiter>();

  get size(): number {
    return this.#line.size;
  }

  /** Those for whom no machine is on its way: what the queue depth bounds. */
  get unclaimed(): number {
    let count = 0;
    for (const waiter of this.#line) if (waiter.claim === null) count += 1;
    return count;
  }

  [Symbol.iterator](): Iterator<Waiter> {
    return this.#line.values();
  }

  has(waiter: Waiter): boolean {
    return this.#line.has(waiter);
  }

  add(waiter: Waiter): void {
    this.#line.add(waiter);
  }

  /** Moves the waiter's claim, or drops it. */
  claim(waiter: Waiter, slot: Slot | null): void {
    waiter.claim?.claims.delete(waiter);
    waiter.claim = slot;
    slot?.claims.add(waiter);
  }

  grant(waiter: Waiter, lease: Lease): void {
    this.#leave(waiter);
    waiter.resolve(lease);
  }

  refuse(waiter: Waiter, error: GatewayError): void {
    if (!this.#line.has(waiter)) return;
    this.#leave(waiter);
    waiter.reject(error);
  }

  #leave(waiter: Waiter): void {
    this.#line.delete(waiter);
    this.claim(waiter, null);
    for (const cleanup of waiter.cleanups.splice(0)) cleanup();
  }
}
