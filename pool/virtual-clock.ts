/** A clock which moves only when told to, for tests of anything that takes a {@link Clock} and for the simulator. */
import type { Clock } from '../sdk/index.ts';

interface Timer {
  readonly at: number;
  readonly order: number;
  callback: (() => void) | null;
}

/** {@link Clock} plus the levers. Timers run in order of time, then of scheduling. */
export interface VirtualClock extends Clock {
  /** Timers which are scheduled and not cancelled. */
  readonly pending: number;
  /** Moves time by `ms`, running every timer that falls due and letting promises settle after each. */
  advance(ms: number): Promise<void>;
  /** Lets every promise that can settle without time passing do so. */
  settle(): Promise<void>;
  /** Steps the wall clock only, as an administrator or NTP would; {@link Clock.monotonic} is unmoved. */
  step(ms: number): void;
}

export interface VirtualClockOptions {
  /** Wall clock at monotonic 0. Default: a fixed instant, so that runs repeat. */
  readonly epochMs?: number;
  /**
   * What settles between two timers. `event-loop` (default): promises, and I/O which is due. `promises`: promises only,
   * several times faster; for worlds without I/O.
   */
  readonly settles?: 'event-loop' | 'promises';
}

/** One round of the event loop: every promise job queued before or during it has run when it resolves. */
const eventLoopTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Node runs a tick that is queued from a promise job after the last of the promise jobs. */
async function promisesTurn(): Promise<void> {
  await undefined;
  await new Promise<void>((resolve) => process.nextTick(resolve));
}

/** Starts at monotonic 0. */
export function createVirtualClock(options: VirtualClockOptions = {}): VirtualClock {
  const { epochMs = 1_700_000_000_000, settles = 'event-loop' } = options;
  const turn = settles === 'promises' ? promisesTurn : eventLoopTurn;
  const heap: Timer[] = [];
  let monotonic = 0;
  let wallOffset = epochMs;
  let order = 0;
  let pending = 0;

  const isBefore = (a: Timer, b: Timer) => a.at < b.at || (a.at === b.at && a.order < b.order);

  function push(timer: Timer): void {
    let index = heap.push(timer) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(timer, heap[parent]!)) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = timer;
  }

  function pop(): void {
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let index = 0;
    for (;;) {
      let child = index * 2 + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
      if (!isBefore(heap[child]!, last)) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = last;
  }

  /** Cancelled timers stay in the heap until they surface; when they outnumber the living, rebuild it. */
  function compact(): void {
    if (heap.length < 64 || heap.length < pending * 2) return;
    const living = heap.filter((timer) => timer.callback !== null);
    heap.length = 0;
    for (const timer of living) push(timer);
  }

  return {
    get pending() {
      return pending;
    },
    now: () => wallOffset + monotonic,
    monotonic: () => monotonic,
    schedule(delayMs, callback) {
      const timer: Timer = { at: monotonic + Math.max(0, delayMs), order: order++, callback };
      push(timer);
      pending += 1;
      return () => {
        if (timer.callback === null) return;
        timer.callback = null;
        pending -= 1;
        compact();
      };
    },
    async advance(ms) {
      const target = monotonic + ms;
      await turn();
      for (let next = heap[0]; next !== undefined && next.at <= target; next = heap[0]) {
        pop();
        const callback = next.callback;
        if (callback === null) continue;
        next.callback = null;
        pending -= 1;
        monotonic = next.at;
        callback();
        await turn();
      }
      monotonic = target;
    },
    settle: turn,
    step(ms) {
      wallOffset += ms;
    },
  };
}
