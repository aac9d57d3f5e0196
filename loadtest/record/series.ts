import { Durations } from './histogram.ts';

/** Every duration the harness records. Milliseconds. */
export const durationMetrics = {
  latency: 'from the instant the schedule wanted it sent to the last byte; timeouts count at their limit',
  service: 'from the actual send to the last byte',
  ttfb: 'from the actual send to the first byte of the answer',
  queue: 'phase that the gateway reports: waiting for a machine',
  restore: 'phase that the gateway reports: making a machine ready',
  exec: 'phase that the gateway reports: the function at work',
  template_latency: 'latency by template',
  step: 'a step of a scripted scenario',
  lag: 'how late the generator sent: its own fault, never the server’s',
} as const;
export type DurationMetric = keyof typeof durationMetrics;

/** Labels by which a metric's series differ. */
export const metricLabels: Readonly<Record<DurationMetric, readonly string[]>> = {
  latency: ['start', 'outcome'],
  service: ['start', 'outcome'],
  ttfb: ['start', 'outcome'],
  queue: ['start'],
  restore: ['start'],
  exec: ['start'],
  template_latency: ['template'],
  step: ['name', 'start', 'outcome'],
  lag: [],
};

export type Labels = Readonly<Record<string, string>>;

/** One histogram with its name. */
export interface Series {
  readonly metric: DurationMetric;
  readonly labels: Labels;
  readonly durations: Durations;
}

/** Most series of one recording, at up to 90 KiB each. Labels from outside (templates, steps) are bounded before. */
const maxSeries = 512;

/** All histograms of a recording, made when first written to. */
export class SeriesSet {
  private readonly byKey = new Map<string, Series>();

  /** The histogram of a metric and labels. Keep the answer on a hot path: finding it builds a key. */
  at(metric: DurationMetric, labels: Labels = {}): Durations {
    const key = `${metric}|${Object.keys(labels)
      .sort()
      .map((name) => `${name}=${labels[name]}`)
      .join('|')}`;
    let series = this.byKey.get(key);
    if (series === undefined) {
      if (this.byKey.size >= maxSeries)
        throw new RangeError(`more than ${maxSeries} series in one recording`);
      series = { metric, labels, durations: new Durations() };
      this.byKey.set(key, series);
    }
    return series.durations;
  }

  /** Everything recorded under a metric whose labels are among those asked for, merged. */
  select(metric: DurationMetric, wanted: Readonly<Record<string, readonly string[]>> = {}): Durations {
    return Durations.union(
      [...this.byKey.values()]
        .filter(
          (series) =>
            series.metric === metric &&
            Object.entries(wanted).every(([name, values]) => values.includes(series.labels[name] ?? '')),
        )
        .map((series) => series.durations),
    );
  }

  values(): IterableIterator<Series> {
    return this.byKey.values();
  }
}
