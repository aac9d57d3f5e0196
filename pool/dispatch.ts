/** Brings waiters and machines together: grants what is free, and has machines brought up for the rest. */
import type { BringUp } from './bring-up.ts';
import type { MachineState } from './machine-state.ts';
import { bestServing, canJoin, hasRoom, homeOf, type MatchRules } from './matching.ts';
import type { Slot } from './slot.ts';
import type { Waiter, WaitLine } from './waiters.ts';

export interface DispatchDeps {
  readonly rules: MatchRules;
  readonly slots: ReadonlySet<Slot>;
  readonly line: WaitLine;
  readonly bringUp: BringUp;
  /** Hands the machine to the waiter. */
  readonly grant: (waiter: Waiter, slot: Slot) => void;
  /** A new slot that counts at once, or null when the pool or the node has no place. */
  readonly openSlot: () => Slot | null;
  /** A fresh machine was taken into use for an invocation. */
  readonly taken: () => void;
  /** Whether the machine is of the source's version; one that is not has been failed. */
  readonly isCurrent: (slot: Slot) => boolean;
}

const isLanding = (state: MachineState): boolean =>
  state.kind === 'waking' || (state.kind === 'restoring' && state.awake);

const isEarly = (state: MachineState): boolean => state.kind === 'queued' || state.kind === 'spawning';

export class Dispatch {
  readonly #deps: DispatchDeps;

  constructor(deps: DispatchDeps) {
    this.#deps = deps;
  }

  run(): void {
    this.#grantFree();
    this.#claim();
  }

  /** First-come: each waiter in turn gets the best machine with room for it. */
  #grantFree(): void {
    const { rules, slots, line } = this.#deps;
    const isFree = (slot: Slot) => slot.state.kind === 'serving' && hasRoom(rules, slot.state);
    if (line.size === 0) return;
    let open = [...slots].filter((slot) => isFree(slot) && this.#deps.isCurrent(slot));
    for (const waiter of line) {
      if (open.length === 0) return;
      const home = waiter.demand.kind === 'session' ? homeOf(rules, slots, waiter.demand.key) : undefined;
      const slot = bestServing(open, waiter.demand, home);
      if (slot === undefined) continue;
      this.#deps.grant(waiter, slot);
      if (!isFree(slot)) open = open.filter((other) => other !== slot);
    }
  }

  /**
   * Sees to it that a machine is on its way for each waiter, the fastest way that is open: one that is about to
   * serve → ready → blank → one that is being spawned → a new one. A waiter whose machine is still being spawned moves
   * to a faster way when one opens.
   */
  #claim(): void {
    const { line, bringUp } = this.#deps;
    const sessions = new Map<string, Slot | null>();
    let mayOpen = true;
    for (const waiter of line) {
      // Its machine has landed, and an earlier waiter took it.
      if (waiter.claim?.state.kind === 'serving') line.claim(waiter, null);
      if (waiter.demand.kind === 'session' && this.#isSettled(waiter, waiter.demand.key, sessions)) continue;
      if (waiter.claim === null || waiter.claim.state.kind === 'spawning') {
        const slot = this.#fastWay(waiter) ?? waiter.claim ?? this.#joinEarly(waiter);
        if (slot !== undefined) line.claim(waiter, slot);
        else if (mayOpen) {
          const opened = this.#deps.openSlot();
          mayOpen = opened !== null;
          if (opened !== null) {
            line.claim(waiter, opened);
            bringUp.spawn(opened, 'live');
            this.#deps.taken();
          }
        }
      }
      if (waiter.demand.kind === 'session') sessions.set(waiter.demand.key, waiter.claim);
    }
  }

  /**
   * A session has one machine: while that lives, or is being brought up for an earlier waiter of the session, later ones
   * share it as far as it has places, and otherwise wait for it without having another started.
   */
  #isSettled(waiter: Waiter, key: string, sessions: ReadonlyMap<string, Slot | null>): boolean {
    const { rules, slots, line } = this.#deps;
    if (homeOf(rules, slots, key) !== undefined) {
      line.claim(waiter, null);
      return true;
    }
    const sibling = sessions.get(key);
    if (sibling === undefined) return false;
    if (waiter.claim !== sibling) {
      const joins = sibling !== null && canJoin(rules, sibling, waiter.demand);
      line.claim(waiter, joins ? sibling : null);
    }
    return true;
  }

  #fastWay(waiter: Waiter): Slot | undefined {
    return this.#joinable(waiter, isLanding) ?? this.#wakeReady(waiter) ?? this.#restoreBlank(waiter);
  }

  #joinEarly(waiter: Waiter): Slot | undefined {
    const slot = this.#joinable(waiter, isEarly);
    if (slot === undefined) return undefined;
    // Claimed first: a promoted restore may get its permit at once, and then looks at its claims.
    this.#deps.line.claim(waiter, slot);
    slot.permit?.promote();
    return slot;
  }

  #wakeReady(waiter: Waiter): Slot | undefined {
    for (const slot of this.#deps.slots) {
      if (slot.state.kind !== 'ready' || !this.#deps.isCurrent(slot)) continue;
      this.#deps.line.claim(waiter, slot);
      this.#deps.bringUp.wake(slot, slot.state.machine);
      this.#deps.taken();
      return slot;
    }
    return undefined;
  }

  #restoreBlank(waiter: Waiter): Slot | undefined {
    for (const slot of this.#deps.slots) {
      if (slot.state.kind !== 'blank') continue;
      // Claimed first: the restore looks at the claims when its permit comes, which may be now.
      this.#deps.line.claim(waiter, slot);
      this.#deps.bringUp.restore(slot, 'live', false);
      this.#deps.taken();
      return slot;
    }
    return undefined;
  }

  #joinable(waiter: Waiter, wanted: (state: MachineState) => boolean): Slot | undefined {
    for (const slot of this.#deps.slots) {
      if (wanted(slot.state) && canJoin(this.#deps.rules, slot, waiter.demand)) return slot;
    }
    return undefined;
  }
}
