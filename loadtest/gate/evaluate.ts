import { samplesNeeded } from '../record/histogram.ts';
import type { Outcome } from '../record/labels.ts';
import type { SeriesSet } from '../record/series.ts';
import type { GaugeName } from '../resource/gauges.ts';
import type { Comparison, Dimension, Threshold } from './expression.ts';
import { formatValue } from './format.ts';

/** Everything a threshold may look at, of one finished run. */
export interface Measurements {
  readonly series: SeriesSet;
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly errorCounts: ReadonlyMap<string, number>;
  readonly scheduled: number;
  readonly dropped: number;
  readonly late: number;
  /** Length of what was measured, all repeats together, milliseconds. */
  readonly measuredMs: number;
  readonly checks: ReadonlyMap<string, { readonly examined: number; readonly violations: number }>;
  readonly gauges: ReadonlyMap<
    GaugeName,
    { readonly min: number; readonly max: number; readonly mean: number; readonly last: number }
  >;
}

/**
 * A judged threshold. `undecided`: there were no samples, or too few for that percentile, and the run fails as if it
 * were missed, because a gate that can't see must not open.
 */
export interface ThresholdVerdict {
  readonly expression: string;
  readonly verdict: 'met' | 'missed' | 'undecided';
  /** In the base unit of `dimension`; `null` when undecided. */
  readonly value: number | null;
  readonly limit: number;
  readonly dimension: Dimension;
  /** For people: `41.2 ms`, or why it is undecided. */
  readonly shown: string;
}

/** Judges one threshold. */
export function evaluate(threshold: Threshold, measurements: Measurements): ThresholdVerdict {
  const found = measure(threshold, measurements);
  const facts = { expression: threshold.text, limit: threshold.limit, dimension: threshold.dimension };
  if (typeof found === 'string') return { ...facts, verdict: 'undecided', value: null, shown: found };
  return {
    ...facts,
    verdict: holds(found, threshold.comparison, threshold.limit) ? 'met' : 'missed',
    value: found,
    shown: formatValue(found, threshold.dimension),
  };
}

function measure(threshold: Threshold, measurements: Measurements): number | string {
  switch (threshold.metric.kind) {
    case 'duration':
      return measureDuration(threshold, measurements);
    case 'count':
      return measureCount(threshold, measurements);
    case 'gauge': {
      const gauge = measurements.gauges.get(threshold.metric.name);
      if (gauge === undefined) return 'the server reported no sample of it';
      return gauge[threshold.aggregate.kind as 'min' | 'max' | 'mean' | 'last'];
    }
  }
}

/** Without a wish, what the function answered and what ran into the limit: refusals are quick and would flatter. */
const servedOutcomes: readonly Outcome[] = ['ok', 'timeout'];

function measureDuration(threshold: Threshold, measurements: Measurements): number | string {
  const { metric, aggregate } = threshold;
  if (metric.kind !== 'duration') return 'not a duration';
  const wanted =
    metric.labels.includes('outcome') && threshold.labels.outcome === undefined
      ? { ...threshold.labels, outcome: servedOutcomes }
      : threshold.labels;
  const durations = measurements.series.select(metric.name, wanted);
  if (aggregate.kind === 'count') return durations.count;
  if (durations.count === 0) return 'no samples';
  if (aggregate.kind === 'percentile') {
    const needed = samplesNeeded(aggregate.percentile);
    if (durations.count < needed) return `${durations.count} samples, needs ${needed}`;
    return durations.percentileMs(aggregate.percentile);
  }
  switch (aggregate.kind) {
    case 'min':
      return durations.minMs;
    case 'max':
      return durations.maxMs;
    case 'mean':
      return durations.meanMs;
    default:
      return durations.deviationMs;
  }
}

function measureCount(threshold: Threshold, measurements: Measurements): number | string {
  const [count, whole] = countAndWhole(threshold, measurements);
  switch (threshold.aggregate.kind) {
    case 'count':
      return count;
    case 'rate':
      return measurements.measuredMs > 0 ? count / (measurements.measuredMs / 1000) : 'nothing was measured';
    default:
      return whole > 0 ? count / whole : 'no samples';
  }
}

function countAndWhole(threshold: Threshold, measurements: Measurements): [count: number, whole: number] {
  const { outcomes, checks, errorCounts } = measurements;
  const sent = outcomes.ok + outcomes.refused + outcomes.failed + outcomes.timeout;
  const pick = (label: string) => threshold.labels[label];
  switch (threshold.metric.name) {
    case 'requests': {
      const wanted = pick('outcome') as readonly Outcome[] | undefined;
      return [wanted === undefined ? sent : sum(wanted.map((outcome) => outcomes[outcome])), sent];
    }
    case 'errors': {
      const codes = pick('code');
      if (codes === undefined) return [outcomes.failed + outcomes.timeout, sent];
      return [sum(codes.map((code) => errorCounts.get(code) ?? 0)), sent];
    }
    case 'dropped':
      return [measurements.dropped, measurements.scheduled];
    case 'late':
      return [measurements.late, measurements.scheduled];
    default: {
      const wanted = pick('check');
      const judged = [...checks].filter(([name]) => wanted === undefined || wanted.includes(name));
      return [
        sum(judged.map(([, check]) => check.violations)),
        sum(judged.map(([, check]) => check.examined)),
      ];
    }
  }
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

function holds(value: number, comparison: Comparison, limit: number): boolean {
  switch (comparison) {
    case '<':
      return value < limit;
    case '<=':
      return value <= limit;
    case '>':
      return value > limit;
    case '>=':
      return value >= limit;
    case '==':
      return value === limit;
    case '!=':
      return value !== limit;
  }
}
