/** Places on the node for machines that are in no pool: forks, resumed sandboxes, blanks that wait for either. */
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError } from '../../sdk/index.ts';

export interface RoomDeps {
  readonly maxMachines: number;
  /** Machines in pools. */
  readonly pooled: () => number;
  /** Gives up an idle machine of a pool; false when there is none. */
  readonly shedPool: () => boolean;
  /** Gives up a waiting blank of ours; false when there is none. */
  readonly shedBlank: () => boolean;
  /** A place has become free for whoever waits in a pool. */
  readonly onFreed: () => void;
}

/** Held for as long as a VMM exists; disposing is idempotent. */
export type Place = Disposable;

/** How long a machine that was given up may take to end. */
const sheddingMs = 2_000;
const lookMs = 20;

export class Room {
  readonly #deps: RoomDeps;
  #held = 0;

  constructor(deps: RoomDeps) {
    this.#deps = deps;
  }

  /** Machines here, to be counted against the node's budget by the pools. */
  get held(): number {
    return this.#held;
  }

  get isFull(): boolean {
    return this.#deps.pooled() + this.#held >= this.#deps.maxMachines;
  }

  /** A place if there is one; never gives anything up for it. */
  tryTake(): Place | null {
    return this.isFull ? null : this.#take();
  }

  /** A place for a machine that exists already. */
  force(): Place {
    return this.#take();
  }

  /** Throws `node_at_capacity` when every place is held by a machine in use, and the signal's reason. */
  async take(signal: AbortSignal): Promise<Place> {
    const { maxMachines, shedBlank, shedPool } = this.#deps;
    if (this.isFull && (shedBlank() || shedPool())) {
      for (let waitedMs = 0; this.isFull && waitedMs < sheddingMs; waitedMs += lookMs)
        await sleep(lookMs, undefined, { signal });
    }
    if (!this.isFull) return this.#take();
    throw new GatewayError('node_at_capacity', `all ${maxMachines} machines of this node are in use`, {
      component: 'edge',
      retryAfterSeconds: 5,
      extra: { limit: maxMachines, used: maxMachines, knob: 'maxMachines' },
    });
  }

  #take(): Place {
    this.#held += 1;
    let isHeld = true;
    return {
      [Symbol.dispose]: () => {
        if (!isHeld) return;
        isHeld = false;
        this.#held -= 1;
        this.#deps.onFreed();
      },
    };
  }
}
