/** Times of the week in which a pool keeps more ready machines than usual, such as office hours. All in UTC. */

export const weekdays = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'] as const;
export type Weekday = (typeof weekdays)[number];

/** From `from` to `to` on each of the days; when `to` is not after `from`, until that time of the next day. */
export interface FloorWindow {
  /** Days on which it begins. Default: every day. */
  readonly days?: readonly Weekday[] | undefined;
  /** `HH:MM`. */
  readonly from: string;
  readonly to: string;
  /** The floor of ready machines meanwhile; the highest counts where windows overlap. */
  readonly ready: number;
}

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;

/** The floor at an instant, and how long it is certain to stay: up to the next begin or end of any window. */
export interface FloorNow {
  readonly ready: number;
  /** Milliseconds; infinite without windows. */
  readonly forMs: number;
}

/** `now`: epoch milliseconds. Windows have been checked. */
export function floorAt(ready: number, windows: readonly FloorWindow[], now: number): FloorNow {
  let floor = ready;
  let forMs = Number.POSITIVE_INFINITY;
  const midnight = Math.floor(now / dayMs) * dayMs;
  for (const window of windows) {
    const from = minutesOf(window.from) * minuteMs;
    const length = (minutesOf(window.to) * minuteMs - from + dayMs - 1) % dayMs;
    // One that began yesterday may still be on; one of tomorrow bounds how long nothing changes.
    for (const day of [midnight - dayMs, midnight, midnight + dayMs]) {
      if (!isDay(window, day)) continue;
      const begin = day + from;
      const end = begin + length + 1;
      if (now >= begin && now < end) floor = Math.max(floor, window.ready);
      for (const edge of [begin, end]) if (edge > now) forMs = Math.min(forMs, edge - now);
    }
  }
  // A window of the day after tomorrow is looked for again by then.
  return { ready: floor, forMs: windows.length === 0 ? forMs : Math.min(forMs, dayMs) };
}

const isDay = ({ days }: FloorWindow, day: number): boolean =>
  days === undefined || days.includes(weekdays[new Date(day).getUTCDay()]!);

/** Minutes since midnight of `HH:MM`; NaN for anything else. */
export function minutesOf(text: string): number {
  const [, hours, minutes] = /^([01][0-9]|2[0-3]):([0-5][0-9])$/.exec(text) ?? [];
  return hours === undefined ? Number.NaN : Number(hours) * 60 + Number(minutes);
}
