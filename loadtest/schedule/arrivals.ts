import type { Profile } from './profile.ts';
import type { Random } from './random.ts';
import { type RateSegment, rateSegments } from './segments.ts';

/**
 * Instants of arrivals in milliseconds from the start of the schedule, in order.
 *
 * The k-th arrival falls where the integral of the rate reaches k (`uniform`) or the k-th sum of exponential draws
 * (`poisson`), which is the exact way to draw a process whose rate changes.
 */
export function* arrivalsOf(
  profile: Profile,
  random: { readonly gaps: Random; readonly dwell: Random },
): Generator<number> {
  if (profile.kind === 'burst') return yield* bursts(profile);
  const poisson = profile.kind === 'poisson' || profile.spacing === 'poisson';
  const segments = rateSegments(profile, random.dwell);
  yield* invert(segments, poisson ? () => random.gaps.exponential() : () => 1, poisson);
}

function* invert(
  segments: Iterable<RateSegment>,
  gap: () => number,
  startsWithGap: boolean,
): Generator<number> {
  let startMs = 0;
  // How much of the integral is still to pass before the next arrival.
  let owed = startsWithGap ? gap() : 0;
  for (const segment of segments) {
    const area = segmentArea(segment, segment.durationMs);
    let passed = 0;
    while (passed + owed < area) {
      passed += owed;
      yield startMs + timeForArea(segment, passed);
      owed = gap();
    }
    owed -= area - passed;
    startMs += segment.durationMs;
  }
}

/** Expected arrivals in the first `ms` of a segment. */
function segmentArea(segment: RateSegment, ms: number): number {
  const slope = (segment.toPerSecond - segment.fromPerSecond) / segment.durationMs;
  return (segment.fromPerSecond * ms + (slope * ms * ms) / 2) / 1000;
}

/** The inverse of {@link segmentArea}; written so that a slope near zero loses no digits. */
function timeForArea(segment: RateSegment, area: number): number {
  const slope = (segment.toPerSecond - segment.fromPerSecond) / segment.durationMs;
  const wanted = area * 1000;
  if (wanted === 0) return 0;
  const root = Math.sqrt(Math.max(0, segment.fromPerSecond ** 2 + 2 * slope * wanted));
  return Math.min(segment.durationMs, (2 * wanted) / (segment.fromPerSecond + root));
}

function* bursts(profile: Extract<Profile, { kind: 'burst' }>): Generator<number> {
  for (let atMs = 0; atMs < profile.durationMs; atMs += profile.everyMs) {
    for (let index = 0; index < profile.size; index++) yield atMs;
  }
}
