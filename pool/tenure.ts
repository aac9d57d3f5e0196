/** The serving part of a machine's life: leases in and out, TTLs, and the reasons to end it. */
import type { StartType } from '../sdk/index.ts';
import type { PoolContext } from './context.ts';
import { createLease, type LeaseOutcome } from './lease.ts';
import type { ServingState } from './machine-state.ts';
import type { Slot } from './slot.ts';
import type { Waiter } from './waiters.ts';

/** Spreads a TTL by ±10 %, so that machines made together don't end together. */
export const jittered = (ms: number, random: () => number): number => ms * (0.9 + random() * 0.2);

export class Tenure {
  readonly #pool: PoolContext;

  constructor(pool: PoolContext) {
    this.#pool = pool;
  }

  /** A machine has begun to serve: its lifetime runs, and its idle time until its first lease. */
  begin(slot: Slot): void {
    const { clock, random, options } = this.#pool;
    slot.servingAt = clock.monotonic();
    const lifetimeMs = jittered(options().ttl.lifetimeMs, random);
    slot.setTimer(
      'lifetime',
      clock.schedule(lifetimeMs, () => this.#expire(slot, 'lifetime')),
    );
    this.#rest(slot);
  }

  /** Leases the machine to the waiter; it has room, as `hasRoom` said. */
  grant(waiter: Waiter, slot: Slot, state: ServingState): void {
    const { clock, counters, observer, digest, line } = this.#pool;
    const grantedAt = clock.monotonic();
    const waitedMs = grantedAt - waiter.arrivedAt;
    const start = startOf(waiter, slot, state);
    const restoreMs = start === 'reused' ? 0 : Math.min(waitedMs, slot.bringUpMs);
    const queueMs = waitedMs - restoreMs;
    slot.apply({ type: 'lease', demand: waiter.demand });
    slot.setTimer('idle');
    counters.leased += 1;
    counters.starts[start] += 1;
    counters.queue.add(queueMs);
    observer.leased({ digest, start, queueMs, restoreMs });
    const lease = createLease({ machine: state.machine, start, queueMs, restoreMs }, (outcome, reason) => {
      counters.leased -= 1;
      if (!waiter.isExclusive) counters.service.add(clock.monotonic() - grantedAt);
      this.#release(slot, outcome, reason);
    });
    line.grant(waiter, lease);
  }

  #release(slot: Slot, outcome: LeaseOutcome, reason: string): void {
    // Ended under its lease by the pool's own dispose.
    if (slot.state.kind !== 'serving') return;
    slot.apply({ type: 'release' });
    if (outcome === 'discard') slot.apply({ type: 'retire', reason });
    const end = slot.state.leases === 0 ? this.#reasonToEnd(slot.state) : null;
    if (end !== null) this.#pool.bringUp.discard(slot, end);
    else if (slot.state.leases === 0) this.#rest(slot);
    this.#pool.round();
  }

  #reasonToEnd(state: ServingState): string | null {
    const { maxInvocations, max } = this.#pool.options();
    if (state.retiring !== null) return state.retiring;
    if (state.tenancy.kind === 'single') return 'used';
    if (state.granted >= maxInvocations) return 'max_invocations';
    return this.#pool.slots.size > max ? 'over_max' : null;
  }

  #rest(slot: Slot): void {
    const { clock, random, options } = this.#pool;
    slot.idleAt = clock.monotonic();
    const idleMs = jittered(options().ttl.idleMs, random);
    slot.setTimer(
      'idle',
      clock.schedule(idleMs, () => this.#expire(slot, 'idle')),
    );
  }

  /** A TTL has run out. In flight, the machine finishes first. */
  #expire(slot: Slot, reason: 'idle' | 'lifetime'): void {
    if (slot.state.kind !== 'serving') return;
    if (slot.state.leases > 0) slot.apply({ type: 'retire', reason });
    else this.#pool.bringUp.discard(slot, reason);
    this.#pool.round();
  }
}

/**
 * How the machine came to be, for whoever waited while it did. A machine that was brought up for somebody who left, and
 * is still unused, was ready for the one who came later.
 */
function startOf(waiter: Waiter, slot: Slot, state: ServingState): StartType {
  if (state.finished === 0 && slot.servingAt >= waiter.arrivedAt) return state.origin;
  return state.granted === 0 ? 'ready' : 'reused';
}
