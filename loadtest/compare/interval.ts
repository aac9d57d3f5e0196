import { mean, probit, sampleVariance } from 'simple-statistics';
import { type Durations, samplesNeeded } from '../record/histogram.ts';

/** A ratio B / A with the interval that holds the true one at the given confidence. */
export interface RatioEstimate {
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
  /**
   * `repeats`: from the spread between repeats, which holds all that differs from run to run. `samples`: from the
   * order statistics of one run each, which holds only what differs within it, so it is too sure of itself.
   */
  readonly basis: 'repeats' | 'samples';
}

/** Repeats of each side from which their spread says more than the samples of one. */
const minRepeats = 3;

/** Welch's interval over the logarithms of a figure from each repeat; `null` with fewer than three on either side. */
export function ratioFromRepeats(
  a: readonly number[],
  b: readonly number[],
  confidence: number,
): RatioEstimate | null {
  if (a.length < minRepeats || b.length < minRepeats || [...a, ...b].some((value) => !(value > 0)))
    return null;
  const [logA, logB] = [a.map(Math.log), b.map(Math.log)];
  const [varianceA, varianceB] = [sampleVariance(logA) / a.length, sampleVariance(logB) / b.length];
  const deviation = Math.sqrt(varianceA + varianceB);
  const freedom =
    deviation === 0
      ? a.length + b.length - 2
      : deviation ** 4 / (varianceA ** 2 / (a.length - 1) + varianceB ** 2 / (b.length - 1));
  const difference = mean(logB) - mean(logA);
  const half = studentQuantile(1 - (1 - confidence) / 2, freedom) * deviation;
  return {
    ratio: Math.exp(difference),
    low: Math.exp(difference - half),
    high: Math.exp(difference + half),
    basis: 'repeats',
  };
}

/** From the order statistics around a percentile on each side; `null` with too few samples for that percentile. */
export function ratioFromSamples(
  a: Durations,
  b: Durations,
  percentile: number,
  confidence: number,
): RatioEstimate | null {
  if (Math.min(a.count, b.count) < samplesNeeded(percentile)) return null;
  const [atA, atB] = [a.percentileMs(percentile), b.percentileMs(percentile)];
  if (!(atA > 0) || !(atB > 0)) return null;
  const z = probit(1 - (1 - confidence) / 2);
  const half = z * Math.hypot(logError(a, percentile, z), logError(b, percentile, z));
  const ratio = atB / atA;
  return { ratio, low: ratio * Math.exp(-half), high: ratio * Math.exp(half), basis: 'samples' };
}

/** Standard error of a percentile's logarithm, from the samples whose ranks bound it (distribution-free). */
function logError(durations: Durations, percentile: number, z: number): number {
  const share = percentile / 100;
  const spread = z * Math.sqrt((share * (1 - share)) / durations.count) * 100;
  const low = durations.percentileMs(Math.max(0, percentile - spread));
  const high = durations.percentileMs(Math.min(100, percentile + spread));
  if (!(low > 0)) return Number.POSITIVE_INFINITY;
  return Math.log(high / low) / (2 * z);
}

/** Student's quantile by Cornish and Fisher's expansion around the normal one; within 1 % from 3 degrees on. */
export function studentQuantile(probability: number, freedom: number): number {
  const z = probit(probability);
  const n = Math.max(1, freedom);
  return (
    z +
    (z ** 3 + z) / (4 * n) +
    (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * n ** 2) +
    (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * n ** 3)
  );
}
