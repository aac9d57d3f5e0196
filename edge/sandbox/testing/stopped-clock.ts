import type { Clock } from '../../../sdk/index.ts';

/** Time that stands until it is told. */
export function stoppedClock() {
  let now = 0;
  const timers = new Set<{ readonly at: number; readonly callback: () => void }>();
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    schedule(delayMs, callback) {
      const timer = { at: now + delayMs, callback };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
  };
  const advance = (ms: number) => {
    now += ms;
    for (const timer of [...timers]) if (timer.at <= now && timers.delete(timer)) timer.callback();
  };
  return { clock, advance, timers };
}
