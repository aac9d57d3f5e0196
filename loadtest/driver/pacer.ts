/**
 * How the sending loop waits for the next arrival. `timer`: one shared timer, ~1 ms late at the median, costs nothing.
 * `spin`: polls the event loop, microseconds late, costs one whole core. `auto`: sleeps and then polls the last
 * millisecond while arrivals are so sparse that this costs less than a third of a core, else `timer`.
 */
export const pacings = ['auto', 'timer', 'spin'] as const;
export type Pacing = (typeof pacings)[number];

/** Gap between arrivals from which `auto` polls: at most 2 ms of polling for each 6 ms. */
const sparseGapMs = 6;
/** Node's timers are whole milliseconds and may fire up to one late. */
const timerSlackMs = 2;

/**
 * Calls back once after about `waitMs`, never blocking the event loop. It may call back early: the loop looks at the
 * clock and waits again. `gapMs` is the whole gap before the next arrival, of which `waitMs` is what is left. The answer
 * cancels it.
 */
export type Pacer = (waitMs: number, gapMs: number, callback: () => void) => () => void;

/** The {@link Pacer} of a {@link Pacing}. Stateless. */
export function createPacer(pacing: Pacing): Pacer {
  return (waitMs, gapMs, callback) => {
    const polls = pacing === 'spin' || (pacing === 'auto' && gapMs >= sparseGapMs);
    if (polls && waitMs <= timerSlackMs) {
      const immediate = setImmediate(callback);
      return () => clearImmediate(immediate);
    }
    const timer = setTimeout(callback, polls ? waitMs - timerSlackMs : Math.max(1, waitMs));
    return () => clearTimeout(timer);
  };
}
