import {
  build,
  decodeFromCompressedBase64,
  encodeIntoCompressedBase64,
  type Histogram,
} from 'hdr-histogram-js';

/** Longest duration that is told apart, one hour; anything longer is recorded as this. */
const ceilingUs = 3_600_000_000;

/** Digits kept: 3 bound the relative error by 0.1 %, at up to 90 KiB a histogram; 2 by 1 %, at up to 12 KiB. */
type Digits = 2 | 3;

/** What people read off a histogram. Milliseconds; `null` where there are too few samples to say. */
export interface Summary {
  readonly count: number;
  readonly minMs: number | null;
  readonly meanMs: number | null;
  readonly p50Ms: number | null;
  readonly p90Ms: number | null;
  readonly p95Ms: number | null;
  readonly p99Ms: number | null;
  readonly p999Ms: number | null;
  readonly maxMs: number | null;
}

/**
 * Samples that a percentile needs before it is shown or judged: ten must lie beyond it, so p50 needs 20, p99 1,000
 * and p99.9 10,000. With fewer, the figure is the luck of a handful of requests.
 */
export function samplesNeeded(percentile: number): number {
  if (percentile >= 100 || percentile <= 0) return 1;
  return Math.ceil(10 / Math.min(1 - percentile / 100, percentile / 100) - 1e-6);
}

/** Durations in an HDR histogram. Merged, never averaged. Memory is bounded by its digits, whatever the count. */
export class Durations {
  private readonly histogram: Histogram;
  /** Kept beside the buckets, so that mean and extremes carry no bucket error, also after a merge. */
  private sumMs = 0;
  private leastMs = Number.POSITIVE_INFINITY;
  private mostMs = Number.NEGATIVE_INFINITY;

  constructor(digits: Digits = 3, histogram?: Histogram) {
    this.histogram =
      histogram ??
      build({ numberOfSignificantValueDigits: digits, bitBucketSize: 32, highestTrackableValue: 1_000_000 });
  }

  get count(): number {
    return this.histogram.totalCount;
  }
  get meanMs(): number {
    return this.count === 0 ? Number.NaN : this.sumMs / this.count;
  }
  get deviationMs(): number {
    return this.count === 0 ? Number.NaN : this.histogram.stdDeviation / 1000;
  }
  get minMs(): number {
    return this.percentileMs(0);
  }
  get maxMs(): number {
    return this.percentileMs(100);
  }

  /** Adds one duration. Negative values (a clock read twice in one tick) count as 0. */
  record(ms: number): void {
    const us = Math.min(ceilingUs, Math.max(0, Math.round(ms * 1000)));
    this.histogram.recordValue(us);
    const recordedMs = us / 1000;
    this.sumMs += recordedMs;
    if (recordedMs < this.leastMs) this.leastMs = recordedMs;
    if (recordedMs > this.mostMs) this.mostMs = recordedMs;
  }

  merge(other: Durations): void {
    if (other.count === 0) return;
    // The library's `add` declares its own kind of histogram; both sides are built above.
    (this.histogram as unknown as { add(other: Histogram): void }).add(other.histogram);
    this.sumMs += other.sumMs;
    this.leastMs = Math.min(this.leastMs, other.leastMs);
    this.mostMs = Math.max(this.mostMs, other.mostMs);
  }

  /** The value at a percentile from 0 to 100, whatever the sample count; `NaN` when empty. */
  percentileMs(percentile: number): number {
    if (this.count === 0) return Number.NaN;
    if (percentile <= 0) return this.leastMs;
    if (percentile >= 100) return this.mostMs;
    // A bucket's value may lie a little beyond what was recorded in it.
    return Math.min(this.mostMs, this.histogram.getValueAtPercentile(percentile) / 1000);
  }

  /** {@link percentileMs} rounded to a microsecond, or `null` with fewer samples than {@link samplesNeeded}. */
  trustedMs(percentile: number): number | null {
    return this.count < samplesNeeded(percentile) ? null : round(this.percentileMs(percentile));
  }

  summary(): Summary {
    const some = (value: number) => (this.count === 0 ? null : round(value));
    return {
      count: this.count,
      minMs: some(this.minMs),
      meanMs: some(this.meanMs),
      p50Ms: this.trustedMs(50),
      p90Ms: this.trustedMs(90),
      p95Ms: this.trustedMs(95),
      p99Ms: this.trustedMs(99),
      p999Ms: this.trustedMs(99.9),
      maxMs: some(this.maxMs),
    };
  }

  /** Text that {@link Durations.decode} reads back without loss of a bucket. */
  encode(): string {
    return `${this.sumMs},${this.leastMs},${this.mostMs}:${encodeIntoCompressedBase64(this.histogram)}`;
  }

  /** Reads {@link encode}'s text; throws a `SyntaxError` on anything else. */
  static decode(text: string): Durations {
    const colon = text.indexOf(':');
    const [sumMs, leastMs, mostMs] = text.slice(0, Math.max(0, colon)).split(',').map(Number);
    if (
      sumMs === undefined ||
      leastMs === undefined ||
      mostMs === undefined ||
      Number.isNaN(sumMs + mostMs)
    ) {
      throw new SyntaxError('not an encoded histogram');
    }
    try {
      const durations = new Durations(3, decodeFromCompressedBase64(text.slice(colon + 1), 32));
      durations.sumMs = sumMs;
      durations.leastMs = leastMs;
      durations.mostMs = mostMs;
      return durations;
    } catch (cause) {
      throw new SyntaxError('not an encoded histogram', { cause });
    }
  }

  /** A merge of any number of histograms; the inputs are not changed. */
  static union(parts: Iterable<Durations>, digits: Digits = 3): Durations {
    const whole = new Durations(digits);
    for (const part of parts) whole.merge(part);
    return whole;
  }
}

const round = (ms: number): number => Math.round(ms * 1000) / 1000;
