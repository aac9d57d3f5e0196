/** The VM budget of a node: who gets the next place when there are fewer places than pools that want one. */
import { GatewayError } from '../sdk/index.ts';
import type { AdmissionKind, AdmissionVerdict, Admit } from './admission.ts';
import type { Pool } from './pool.ts';
import type { SheddableKind } from './shedding.ts';

export interface NodeBudgetDeps {
  readonly maxMachines: number;
  /** Machines that count now, in all pools and outside. */
  readonly used: () => number;
  /** Those of them that are being disposed of. */
  readonly ending: () => number;
  /** Those being made for nobody yet, which can be given up once they are made. */
  readonly refilling: () => number;
  /** Gives up one idle machine somewhere, of the first kind there is; false when there is none. */
  readonly shed: (kinds: readonly SheddableKind[]) => boolean;
  /** A further say, such as memory; asked when there is a place. */
  readonly admit: Admit;
}

/** What is given up for an invocation, in this order. */
const forInvocation: readonly SheddableKind[] = ['blank', 'ready', 'idle'];
/**
 * And for one whose version has no machine at all. Floors that add up to more than the node would otherwise shut such a
 * version out for good: an invocation in hand is worth more than a machine kept for one that may come.
 */
const forFirstMachine: readonly SheddableKind[] = [...forInvocation, 'floor'];

/**
 * Pools with an invocation that waits for a place take turns, the longest waiting first, whichever pool a place came
 * from; refill gets one only when nobody waits. On a full node an invocation has an idle machine given up for it.
 */
export class NodeBudget {
  readonly #deps: NodeBudgetDeps;
  /** In the order of their turns. */
  readonly #starved = new Set<Pool>();
  /** The pool which is being asked whether it still wants its turn. */
  #turn: Pool | null = null;
  #isServing = false;

  constructor(deps: NodeBudgetDeps) {
    this.#deps = deps;
  }

  /** A pool asks for a place for one more machine. */
  admit(kind: AdmissionKind, pool: Pool): AdmissionVerdict {
    const { maxMachines, used, admit } = this.#deps;
    const places = maxMachines - used();
    const isItsTurn = kind === 'live' && this.#turn === pool;
    const isContested = !isItsTurn && this.#waiting(pool) >= places;
    if (places > 0 && !isContested) return admit(kind, pool.digest);
    if (kind === 'refill') return this.#refused();
    this.#starved.add(pool);
    if (places > 0) {
      queueMicrotask(() => this.serveStarved());
      return { kind: 'pending' };
    }
    const kinds = pool.size === 0 ? forFirstMachine : forInvocation;
    const isComing = this.#isMakingRoom() || this.#deps.shed(kinds) || this.#deps.refilling() > 0;
    return isComing ? { kind: 'pending' } : this.#refused();
  }

  /** Offers the places there are to the pools that wait, in turn. */
  serveStarved(): void {
    if (this.#isServing) return;
    this.#isServing = true;
    for (const pool of [...this.#starved]) {
      if (this.#deps.used() >= this.#deps.maxMachines) break;
      // It comes last in line again if it asks for more than it gets, and drops out if it doesn't ask.
      this.#starved.delete(pool);
      this.#turn = pool;
      pool.poke();
      this.#turn = null;
    }
    this.#isServing = false;
  }

  /** A pool has ended. */
  forget(pool: Pool): void {
    this.#starved.delete(pool);
  }

  /** Pools that wait for their turn, other than this one. */
  #waiting(pool: Pool): number {
    let count = 0;
    for (const other of this.#starved) if (other !== pool && other.starving > 0) count += 1;
    return count;
  }

  /** Whether as many machines are on their way out as invocations wait for a place, so that no more need be shed. */
  #isMakingRoom(): boolean {
    const ending = this.#deps.ending();
    let starving = 0;
    for (const pool of this.#starved) starving += pool.starving;
    return ending > 0 && ending >= starving;
  }

  #refused(): AdmissionVerdict {
    const { maxMachines } = this.#deps;
    const used = this.#deps.used();
    const error = new GatewayError(
      'node_at_capacity',
      `${used} of the ${maxMachines} machines of this node are in use`,
      {
        component: 'pool',
        extra: { limit: maxMachines, used, knob: 'maxMachines' },
      },
    );
    return { kind: 'refused', error };
  }
}
