import { Durations, type Summary } from '../record/histogram.ts';
import { startLabels } from '../record/labels.ts';
import { type Lane, servedLanes } from '../record/lanes.ts';
import type { Result } from '../record/result.ts';
import { type GaugeName, gauges } from '../resource/gauges.ts';

/** A row of a latency table. */
export interface LatencyRow {
  readonly name: string;
  readonly summary: Summary;
}

/** Merged histogram of all series of a metric that a filter takes. */
export function mergedSeries(
  result: Result,
  metric: string,
  isWanted: (labels: Readonly<Record<string, string>>) => boolean = () => true,
): Durations {
  return Durations.union(
    result.series
      .filter((series) => series.metric === metric && isWanted(series.labels))
      .map((series) => Durations.decode(series.histogram)),
  );
}

/** What was timed, decoded. */
export const lanesOf = (result: Result, metric: 'latency' | 'service' = 'latency'): Lane[] =>
  servedLanes(
    result.series.map((one) => ({ ...one, durations: Durations.decode(one.histogram) })),
    metric,
  );

/** Latency or service time of what was served: all together, then by start type. */
export function latencyRows(result: Result, metric: 'latency' | 'service'): LatencyRow[] {
  const lanes = lanesOf(result, metric).filter(({ kind }) => kind !== 'step');
  // A server that names no start type makes one row that says the same as the first.
  const shown = lanes.length === 2 && lanes[1]!.lane === 'unknown' ? lanes.slice(0, 1) : lanes;
  if (shown.length === 0) return [{ name: 'all', summary: new Durations().summary() }];
  return shown.map(({ lane, durations }) => ({ name: lane, summary: durations.summary() }));
}

/** Steps of a session scenario, in the order in which they were first recorded. */
export const stepRows = (result: Result): LatencyRow[] =>
  lanesOf(result)
    .filter(({ kind }) => kind === 'step')
    .map(({ lane, durations }) => ({ name: lane, summary: durations.summary() }));

/** The phases that the server reported, by start type. */
export function phaseRows(result: Result): LatencyRow[] {
  return (['queue', 'restore', 'exec'] as const).flatMap((phase) =>
    startLabels.flatMap((start) => {
      const durations = mergedSeries(result, phase, (labels) => labels.start === start);
      return durations.count === 0 ? [] : [{ name: `${phase}, ${start}`, summary: durations.summary() }];
    }),
  );
}

/** Spread of a percentile over repeats; `null` below two repeats that know it. */
export function spread(
  values: readonly (number | null)[],
): { readonly mean: number; readonly deviation: number; readonly variation: number } | null {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const deviation = Math.sqrt(
    known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (known.length - 1),
  );
  return { mean, deviation, variation: mean === 0 ? 0 : deviation / mean };
}

/** Highest sample of each resource that the server reported. */
export function resourceRows(
  result: Result,
): { readonly name: GaugeName; readonly title: string; readonly max: number; readonly last: number }[] {
  return (Object.keys(gauges) as GaugeName[]).flatMap((name) => {
    const values = result.resources
      .map((sample) => sample.values[name])
      .filter((value) => value !== undefined);
    return values.length === 0
      ? []
      : [{ name, title: gauges[name].title, max: Math.max(...values), last: values.at(-1)! }];
  });
}

/** Points of the percentile curve: 0 to 99.999, denser towards the end, as far as the samples carry. */
export function percentileCurve(
  durations: Durations,
): { readonly percentile: number; readonly ms: number }[] {
  const curve: { percentile: number; ms: number }[] = [];
  for (let nines = 0; nines <= 5; nines++) {
    for (let step = 0; step < 18; step++) {
      const beyond = 10 ** -nines * (1 - step / 20);
      if (beyond * durations.count < 1) return curve;
      const percentile = 100 * (1 - beyond);
      curve.push({ percentile, ms: durations.percentileMs(percentile) });
    }
  }
  return curve;
}

/** Served requests a second over what was measured. */
export const throughput = (result: Result): number =>
  result.run.measuredMs === 0 ? 0 : ((result.outcomes.ok ?? 0) * 1000) / result.run.measuredMs;

/** What must be said beside the figures. Empty when there is nothing. */
export function caveats(result: Result): string[] {
  const notes: string[] = [];
  if (result.run.loop === 'closed') {
    notes.push(
      'Closed loop: the generator waited for the server, so waits during stalls are missing (coordinated omission). These figures say how fast it went, not how long callers wait.',
    );
  }
  if (result.environment.isSameHost) {
    notes.push('Generator and server shared one host, so they competed for its cores.');
  }
  if (result.environment.loadAverage > result.environment.cores) {
    notes.push(
      `Other work was running: load average ${result.environment.loadAverage} on ${result.environment.cores} cores before the run.`,
    );
  }
  if (result.generator.rawLinesDropped > 0) {
    notes.push(`${result.generator.rawLinesDropped} raw lines were lost because the disk was too slow.`);
  }
  return notes;
}
