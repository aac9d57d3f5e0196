import { z } from 'zod';

const rate = z.number().min(0).max(1_000_000);
const durationMs = z
  .number()
  .int()
  .min(1)
  .max(7 * 24 * 3_600_000);
/** `uniform` spaces arrivals evenly within the rate; `poisson` draws independent exponential gaps. */
const spacing = z.enum(['uniform', 'poisson']).default('uniform');

/**
 * How arrivals are spread over time. Rates are arrivals a second, all times milliseconds. A profile and a seed decide
 * every arrival; nothing about the server does.
 */
export const profileSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('constant'), ratePerSecond: rate, durationMs, spacing }),
  z.strictObject({ kind: z.literal('ramp'), fromPerSecond: rate, toPerSecond: rate, durationMs, spacing }),
  z.strictObject({
    kind: z.literal('step'),
    steps: z
      .array(z.strictObject({ ratePerSecond: rate, durationMs }))
      .min(1)
      .max(1_000),
    spacing,
  }),
  z.strictObject({ kind: z.literal('poisson'), ratePerSecond: rate, durationMs }),
  z.strictObject({
    kind: z.literal('bursty'),
    onPerSecond: rate,
    offPerSecond: rate.default(0),
    onMs: durationMs,
    offMs: durationMs,
    /** `exponential`: on and off times are drawn with these means (a Markov-modulated process). */
    dwell: z.enum(['fixed', 'exponential']).default('fixed'),
    durationMs,
    spacing,
  }),
  z.strictObject({
    kind: z.literal('spike'),
    basePerSecond: rate,
    spikePerSecond: rate,
    spikeAtMs: z.number().int().min(0),
    spikeMs: durationMs,
    durationMs,
    spacing,
  }),
  z.strictObject({
    kind: z.literal('diurnal'),
    meanPerSecond: rate,
    /** Swing as a share of the mean: 1 means the trough is silent. */
    amplitude: z.number().min(0).max(1),
    periodMs: durationMs,
    durationMs,
    spacing,
  }),
  z.strictObject({
    kind: z.literal('burst'),
    /** Arrivals of one burst; all of them have the same instant. */
    size: z.number().int().min(1).max(100_000),
    everyMs: durationMs,
    durationMs,
  }),
]);

/** A validated profile. */
export type Profile = z.output<typeof profileSchema>;
/** A profile as people write it, with defaults left out. */
export type ProfileInput = z.input<typeof profileSchema>;

/** Length of the schedule in milliseconds. */
export function profileDurationMs(profile: Profile): number {
  return profile.kind === 'step'
    ? profile.steps.reduce((sum, step) => sum + step.durationMs, 0)
    : profile.durationMs;
}

/** One line for people: `constant 100/s for 30 s`. */
export function describeProfile(profile: Profile): string {
  const seconds = `for ${formatSeconds(profileDurationMs(profile))}`;
  const spaced = 'spacing' in profile && profile.spacing === 'poisson' ? ', Poisson arrivals' : '';
  switch (profile.kind) {
    case 'constant':
      return `constant ${perSecond(profile.ratePerSecond)} ${seconds}${spaced}`;
    case 'poisson':
      return `Poisson ${perSecond(profile.ratePerSecond)} ${seconds}`;
    case 'ramp':
      return `ramp ${perSecond(profile.fromPerSecond)} to ${perSecond(profile.toPerSecond)} ${seconds}${spaced}`;
    case 'step':
      return `steps ${profile.steps.map((step) => `${perSecond(step.ratePerSecond)}`).join(', ')} ${seconds}${spaced}`;
    case 'bursty':
      return `bursty ${perSecond(profile.onPerSecond)} on, ${perSecond(profile.offPerSecond)} off (${profile.dwell}) ${seconds}${spaced}`;
    case 'spike':
      return `spike ${perSecond(profile.basePerSecond)} to ${perSecond(profile.spikePerSecond)} ${seconds}${spaced}`;
    case 'diurnal':
      return `diurnal around ${perSecond(profile.meanPerSecond)} ${seconds}${spaced}`;
    case 'burst':
      return `bursts of ${profile.size} every ${formatSeconds(profile.everyMs)} ${seconds}`;
  }
}

const perSecond = (rate: number): string => `${Number(rate.toPrecision(4))}/s`;
const formatSeconds = (ms: number): string => `${Math.round(ms) / 1000} s`;
