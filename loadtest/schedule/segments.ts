import type { Profile } from './profile.ts';
import type { Random } from './random.ts';

/** A stretch of the schedule over which the rate changes linearly. Rates are arrivals a second. */
export interface RateSegment {
  readonly durationMs: number;
  readonly fromPerSecond: number;
  readonly toPerSecond: number;
}

/** Linear pieces per period of a diurnal curve; the error against the sine is below 0.1 % of the mean. */
const diurnalPieces = 96;

/** The rate curve of every profile but `burst`, piece by piece, so that a week needs no more memory than a second. */
export function* rateSegments(
  profile: Exclude<Profile, { kind: 'burst' }>,
  random: Random,
): Generator<RateSegment> {
  switch (profile.kind) {
    case 'constant':
    case 'poisson':
      return yield flat(profile.ratePerSecond, profile.durationMs);
    case 'ramp':
      return yield {
        durationMs: profile.durationMs,
        fromPerSecond: profile.fromPerSecond,
        toPerSecond: profile.toPerSecond,
      };
    case 'step':
      for (const step of profile.steps) yield flat(step.ratePerSecond, step.durationMs);
      return;
    case 'bursty':
      return yield* onOff(profile, random);
    case 'spike':
      return yield* spike(profile);
    case 'diurnal':
      return yield* diurnal(profile);
  }
}

const flat = (ratePerSecond: number, durationMs: number): RateSegment => ({
  durationMs,
  fromPerSecond: ratePerSecond,
  toPerSecond: ratePerSecond,
});

function* onOff(profile: Extract<Profile, { kind: 'bursty' }>, random: Random): Generator<RateSegment> {
  let left = profile.durationMs;
  for (let on = true; left > 0; on = !on) {
    const mean = on ? profile.onMs : profile.offMs;
    // At least a millisecond, so that a run of tiny draws cannot make endless segments.
    const drawn = profile.dwell === 'fixed' ? mean : Math.max(1, mean * random.exponential());
    const durationMs = Math.min(left, drawn);
    yield flat(on ? profile.onPerSecond : profile.offPerSecond, durationMs);
    left -= durationMs;
  }
}

function* spike(profile: Extract<Profile, { kind: 'spike' }>): Generator<RateSegment> {
  const startMs = Math.min(profile.spikeAtMs, profile.durationMs);
  const endMs = Math.min(startMs + profile.spikeMs, profile.durationMs);
  if (startMs > 0) yield flat(profile.basePerSecond, startMs);
  if (endMs > startMs) yield flat(profile.spikePerSecond, endMs - startMs);
  if (profile.durationMs > endMs) yield flat(profile.basePerSecond, profile.durationMs - endMs);
}

/** Starts in the trough, as a day does at midnight. */
function* diurnal(profile: Extract<Profile, { kind: 'diurnal' }>): Generator<RateSegment> {
  const pieceMs = profile.periodMs / diurnalPieces;
  const rateAt = (ms: number) =>
    Math.max(
      0,
      profile.meanPerSecond * (1 - profile.amplitude * Math.cos((2 * Math.PI * ms) / profile.periodMs)),
    );
  for (let piece = 0; piece * pieceMs < profile.durationMs; piece++) {
    const startMs = piece * pieceMs;
    const endMs = Math.min(startMs + pieceMs, profile.durationMs);
    yield { durationMs: endMs - startMs, fromPerSecond: rateAt(startMs), toPerSecond: rateAt(endMs) };
  }
}
