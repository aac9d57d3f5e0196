import type { ArrivalBlock, ArrivalSource } from '../schedule/source.ts';
import type { Pacer } from './pacer.ts';

/** What an arrival sets off. Both loops drive it; HTTP requests and scripted sessions implement it. */
export interface Launcher {
  /** Starts it and returns at once. Never throws: failures become samples. */
  launch(arrival: LaunchedArrival): void;
  /** Launched and not settled. */
  readonly inFlight: number;
  /** Resolves when nothing is in flight. */
  idle(): Promise<void>;
}

/** An arrival at the moment it is launched. Instants are milliseconds from the start of the schedule. */
export interface LaunchedArrival {
  readonly sequence: number;
  readonly target: number;
  readonly workMs: number;
  readonly intendedMs: number;
  readonly sentMs: number;
}

/** Why an arrival of the schedule was never sent. */
export type DropReason = 'in-flight limit' | 'generator behind';

/** Who is told how well the schedule was kept. */
export interface ScheduleObserver {
  launched(intendedMs: number, lagMs: number): void;
  dropped(intendedMs: number, reason: DropReason): void;
}

/** Arrivals sent in one turn of the event loop; more would hold up the answers of those already sent. */
const launchesPerTurn = 64;

/**
 * Fires every arrival of the schedule at its instant, whatever became of earlier ones. Returns when the last was fired
 * or dropped, or when `signal` aborts; what is in flight is the caller's to await.
 */
export async function driveOpenLoop(
  deps: {
    readonly source: ArrivalSource;
    readonly launcher: Launcher;
    readonly observer: ScheduleObserver;
    readonly pacer: Pacer;
    /** Milliseconds from the start of the schedule; negative before it. */
    readonly now: () => number;
  },
  options: {
    /** Arrivals beyond this many open ones are dropped and counted. */
    readonly maxInFlight: number;
    /** An arrival later than this is dropped, which bounds the backlog of an overloaded generator. */
    readonly dropAfterMs: number;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  let upcoming = deps.source.next();
  // Held unawaited while a block is being sent; it is observed when that block ends.
  upcoming.catch(() => undefined);
  for (;;) {
    const block = await upcoming;
    if (block === null || options.signal.aborted) return;
    upcoming = deps.source.next();
    upcoming.catch(() => undefined);
    await sendBlock(block, deps, options);
  }
}

function sendBlock(
  block: ArrivalBlock,
  deps: Parameters<typeof driveOpenLoop>[0],
  options: Parameters<typeof driveOpenLoop>[1],
): Promise<void> {
  const { launcher, observer, pacer, now } = deps;
  return new Promise((resolve, reject) => {
    let cursor = 0;
    let gapMs = Number.NaN;
    let cancelWait: () => void = () => undefined;
    const stop = () => {
      cancelWait();
      options.signal.removeEventListener('abort', stop);
      resolve();
    };
    // The next arrival may be minutes away.
    options.signal.addEventListener('abort', stop);
    const turn = () => {
      if (options.signal.aborted) return stop();
      try {
        const before = cursor;
        let sentMs = now();
        while (cursor < block.count && block.atMs[cursor]! <= sentMs && cursor - before < launchesPerTurn) {
          fire(cursor++, sentMs);
          sentMs = now();
        }
        if (cursor === block.count) return stop();
        const waitMs = block.atMs[cursor]! - sentMs;
        if (waitMs <= 0) return void setImmediate(turn);
        if (cursor > before || Number.isNaN(gapMs)) gapMs = waitMs;
        cancelWait = pacer(waitMs, gapMs, turn);
      } catch (error) {
        options.signal.removeEventListener('abort', stop);
        reject(error);
      }
    };
    const fire = (row: number, sentMs: number) => {
      const intendedMs = block.atMs[row]!;
      const lagMs = sentMs - intendedMs;
      if (lagMs > options.dropAfterMs) return observer.dropped(intendedMs, 'generator behind');
      if (launcher.inFlight >= options.maxInFlight) return observer.dropped(intendedMs, 'in-flight limit');
      observer.launched(intendedMs, lagMs);
      launcher.launch({
        sequence: block.sequence[row]!,
        target: block.target[row]!,
        workMs: block.workMs[row]!,
        intendedMs,
        sentMs,
      });
    };
    turn();
  });
}
