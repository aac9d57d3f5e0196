/** Bounds how many builds run at once on a host, and keeps two builds of one version apart. */

import { GatewayError } from '../../sdk/index.ts';

/** Both waits end at once with the signal's reason when it aborts. */
export interface BuildLane {
  /** Counts a build from its first byte to its end. @throws GatewayError `node_at_capacity` when too many are under way */
  admit<T>(work: () => Promise<T>): Promise<T>;
  /** Runs `work` when fewer than the allowed number of builds run; first come, first served. */
  enter<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T>;
  /** Runs `work` when no other work for the same key runs. */
  alone<T>(key: string, signal: AbortSignal, work: () => Promise<T>): Promise<T>;
  /** Whether a build that enters now would have to wait. */
  readonly isBusy: boolean;
}

/** A counting gate with a first-come queue; a waiter that gives up leaves at once. */
class Gate {
  #free: number;
  readonly #waiters: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  get isBusy(): boolean {
    return this.#free === 0;
  }

  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    await this.#acquire(signal);
    try {
      return await work();
    } finally {
      const next = this.#waiters.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }

  async #acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    const turn = Promise.withResolvers<void>();
    const leave = () => {
      const index = this.#waiters.indexOf(turn.resolve);
      if (index === -1) return;
      this.#waiters.splice(index, 1);
      turn.reject(signal.reason);
    };
    this.#waiters.push(turn.resolve);
    signal.addEventListener('abort', leave, { once: true });
    try {
      await turn.promise;
    } finally {
      signal.removeEventListener('abort', leave);
    }
  }
}

export interface BuildLaneOptions {
  /** Builds at the same time; each holds a whole guest's memory. Default 1. */
  readonly concurrency?: number;
  /** Builds whose upload is on this host's disk and which wait for their turn. Default 16. */
  readonly maxWaiting?: number;
}

const retryAfterSeconds = 30;

/** One lane per host, shared by all that build there. */
export function createBuildLane({ concurrency = 1, maxWaiting = 16 }: BuildLaneOptions = {}): BuildLane {
  const places = new Gate(concurrency);
  const most = concurrency + maxWaiting;
  let admitted = 0;
  const keys = new Map<string, { readonly gate: Gate; users: number }>();
  return {
    async admit(work) {
      if (admitted >= most) {
        throw new GatewayError('node_at_capacity', `${admitted} builds are under way on this host already`, {
          component: 'templates',
          retryAfterSeconds,
        });
      }
      admitted += 1;
      try {
        return await work();
      } finally {
        admitted -= 1;
      }
    },
    enter: (signal, work) => places.run(signal, work),
    async alone(key, signal, work) {
      const slot = keys.get(key) ?? { gate: new Gate(1), users: 0 };
      keys.set(key, slot);
      slot.users += 1;
      try {
        return await slot.gate.run(signal, work);
      } finally {
        slot.users -= 1;
        if (slot.users === 0) keys.delete(key);
      }
    },
    get isBusy() {
      return places.isBusy;
    },
  };
}
