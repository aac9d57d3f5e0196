/** Keeps a pool at its size in the background: up at once, down slowly, never in a hot loop. */
import type { Clock } from '../sdk/index.ts';
import { createBackoff } from './backoff.ts';
import type { BringUp } from './bring-up.ts';
import type { PoolLimits } from './options.ts';
import type { Sizing, SizingDecision } from './sizing.ts';
import type { Slot } from './slot.ts';
import { type FloorNow, floorAt } from './windows.ts';

/** What there is, for {@link planRefill}. */
export interface RefillInventory {
  readonly ready: number;
  /** On the way to ready, claimed by nobody. */
  readonly restoring: number;
  readonly blank: number;
  /** On the way to blank, claimed by nobody. */
  readonly spawning: number;
  /** Places left under `max`. */
  readonly places: number;
}

/**
 * Ready machines missing, VMMs to spawn and blanks to restore now; all count what is under way. Blanks of the floor stay where they are, so that
 * the next miss costs a load and not a spawn, unless there is no place left to spawn in.
 */
export function planRefill(
  have: RefillInventory,
  want: { readonly ready: number; readonly blank: number },
): { readonly missing: number; readonly restore: number; readonly spawn: number } {
  const missing = Math.max(0, want.ready - have.ready - have.restoring);
  const spawn = Math.max(0, Math.min(missing + want.blank - have.blank - have.spawning, have.places));
  const spare = Math.max(0, have.blank - want.blank);
  const uncovered = Math.max(0, missing - spare - have.spawning - spawn);
  return { missing, restore: Math.min(missing, spare + uncovered, have.blank), spawn };
}

export interface RefillDeps {
  readonly clock: Clock;
  readonly random: () => number;
  readonly slots: ReadonlySet<Slot>;
  readonly bringUp: BringUp;
  readonly sizing: Sizing;
  readonly limits: () => PoolLimits;
  /** A new slot that counts at once, or null when the node has no place for a refill. */
  readonly openSlot: () => Slot | null;
  /** Runs the pool's round again, which calls {@link Refill.run}. */
  readonly poke: () => void;
}

/** How often a surplus is looked at, and the least time between two shrinks. */
const shrinkMs = 5_000;
/** Pause after the node refused a refill. */
const refusedMs = 1_000;

export class Refill {
  readonly #deps: RefillDeps;
  readonly #backoff;
  #heldUntil = 0;
  #surplusSince: number | null = null;
  #review: { readonly at: number; readonly cancel: () => void } | null = null;

  constructor(deps: RefillDeps) {
    this.#deps = deps;
    this.#backoff = createBackoff(deps);
  }

  /** Machines being made which no invocation has claimed. */
  get underway(): number {
    let underway = 0;
    for (const { state, claims } of this.#deps.slots) {
      const isMade = state.kind === 'spawning' || state.kind === 'queued' || state.kind === 'restoring';
      if (isMade && claims.size === 0) underway += 1;
    }
    return underway;
  }

  /** The size aimed at now, and why. */
  decide(): SizingDecision {
    return this.#deps.sizing.decide({ floor: this.floor, ceiling: this.#deps.limits().max });
  }

  /** Ready machines that are kept whatever the demand, at this time of the week. */
  get floor(): number {
    return this.#floorNow().ready;
  }

  #floorNow(): FloorNow {
    const { ready, windows } = this.#deps.limits();
    return floorAt(ready, windows ?? [], this.#deps.clock.now());
  }

  /** A machine failed, outside any invocation's answer: wait before making the next. */
  failed(): void {
    this.#backoff.failed();
  }

  /** Makes nothing for a while; for memory pressure. */
  hold(durationMs: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, this.#deps.clock.monotonic() + durationMs);
  }

  run(): void {
    const { clock, slots, bringUp } = this.#deps;
    const decision = this.decide();
    const limits = this.#deps.limits();
    const { ready, blank, restoring, spawning } = this.#unclaimed();
    const plan = planRefill(
      {
        ...{ restoring, spawning },
        ready: ready.length,
        blank: blank.length,
        places: limits.max - slots.size,
      },
      { ready: decision.ready, blank: limits.blank },
    );
    if (plan.restore + plan.spawn > 0) {
      const waitMs = Math.max(this.#backoff.waitMs(), this.#heldUntil - clock.monotonic());
      if (waitMs > 0) this.#reviewIn(waitMs);
      else {
        const refused = this.#spawn(plan.spawn);
        // What the node has no place to spawn is taken from the blanks, which are there already.
        const restore = Math.min(plan.restore + refused, plan.missing);
        for (const slot of blank.slice(0, restore)) bringUp.restore(slot, 'refill', false);
      }
    }
    const surplus = [
      ...ready.slice(0, Math.max(0, ready.length - decision.ready)),
      ...blank.slice(0, Math.max(0, blank.length - plan.restore - limits.blank)),
    ];
    this.#shrink(surplus);
    if (decision.because !== 'floor') this.#reviewIn(shrinkMs);
    const { forMs } = this.#floorNow();
    if (Number.isFinite(forMs)) this.#reviewIn(forMs);
  }

  /** Machines that nobody waits for. Looked at after every lease, hence one pass. */
  #unclaimed() {
    const found = { ready: [] as Slot[], blank: [] as Slot[], restoring: 0, spawning: 0 };
    for (const slot of this.#deps.slots) {
      const { state, claims } = slot;
      if (claims.size > 0) continue;
      if (state.kind === 'ready') found.ready.push(slot);
      else if (state.kind === 'blank') found.blank.push(slot);
      else if (state.kind === 'spawning') found.spawning += 1;
      else if (state.kind === 'queued' || (state.kind === 'restoring' && !state.awake)) found.restoring += 1;
    }
    return found;
  }

  stop(): void {
    this.#review?.cancel();
    this.#review = null;
  }

  /** Answers how many the node had no place for. */
  #spawn(count: number): number {
    for (let made = 0; made < count; made += 1) {
      const slot = this.#deps.openSlot();
      if (slot === null) {
        this.#reviewIn(refusedMs * (0.5 + this.#deps.random()));
        return count - made;
      }
      this.#deps.bringUp.spawn(slot, 'refill');
    }
    return 0;
  }

  /** Gives back one machine per step, and only after the surplus has lasted a step. */
  #shrink(surplus: readonly Slot[]): void {
    const [first] = surplus;
    if (first === undefined) {
      this.#surplusSince = null;
      return;
    }
    const now = this.#deps.clock.monotonic();
    this.#surplusSince ??= now;
    if (now - this.#surplusSince >= shrinkMs) {
      this.#surplusSince = now;
      this.#deps.bringUp.discard(first, 'surplus');
    }
    this.#reviewIn(shrinkMs);
  }

  /** At most one timer, for the soonest review asked for. */
  #reviewIn(delayMs: number): void {
    const at = this.#deps.clock.monotonic() + delayMs;
    if (this.#review !== null && this.#review.at <= at) return;
    this.#review?.cancel();
    const cancel = this.#deps.clock.schedule(delayMs, () => {
      this.#review = null;
      this.#deps.poke();
    });
    this.#review = { at, cancel };
  }
}
