import { outcomes, startLabels } from '../record/labels.ts';
import { type DurationMetric, durationMetrics, metricLabels } from '../record/series.ts';
import { type GaugeName, gauges } from '../resource/gauges.ts';

/** Things that are counted. `ratio` divides by what the second column says. */
const countMetrics = {
  requests: { per: 'requests sent', labels: ['outcome'] },
  errors: { per: 'requests sent', labels: ['code'] },
  dropped: { per: 'arrivals scheduled', labels: [] },
  late: { per: 'arrivals scheduled', labels: [] },
  violations: { per: 'answers examined', labels: ['check'] },
} as const satisfies Record<string, { per: string; labels: readonly string[] }>;
type CountMetric = keyof typeof countMetrics;

/** A metric a threshold may name. */
export type MetricRef =
  | { readonly kind: 'duration'; readonly name: DurationMetric; readonly labels: readonly string[] }
  | { readonly kind: 'count'; readonly name: CountMetric; readonly labels: readonly string[] }
  | {
      readonly kind: 'gauge';
      readonly name: GaugeName;
      readonly labels: readonly string[];
      readonly unit: 'bytes' | 'number';
    };

/** The metric of a name, or `undefined`: an unknown metric must be an error, never a threshold that can't fail. */
export function findMetric(name: string): MetricRef | undefined {
  if (Object.hasOwn(durationMetrics, name)) {
    const metric = name as DurationMetric;
    return { kind: 'duration', name: metric, labels: metricLabels[metric] };
  }
  if (Object.hasOwn(countMetrics, name)) {
    const metric = name as CountMetric;
    return { kind: 'count', name: metric, labels: countMetrics[metric].labels };
  }
  if (Object.hasOwn(gauges, name)) {
    const metric = name as GaugeName;
    return { kind: 'gauge', name: metric, labels: [], unit: gauges[metric].unit };
  }
  return undefined;
}

/** Every metric name, for error messages and `--help`. */
export const metricNames = (): string[] => [
  ...Object.keys(durationMetrics),
  ...Object.keys(countMetrics),
  ...Object.keys(gauges),
];

/** What label values a run can have; `null` where any text may come. */
export interface LabelVocabulary {
  readonly template: readonly string[];
  /** Steps of the scenario. */
  readonly name: readonly string[];
  readonly check: readonly string[];
}

/** Values a label may have, or `null` when they are not known before the run. */
export function labelValues(label: string, vocabulary: LabelVocabulary): readonly string[] | null {
  switch (label) {
    case 'start':
      return startLabels;
    case 'outcome':
      return outcomes;
    case 'template':
      return vocabulary.template;
    case 'name':
      return vocabulary.name;
    case 'check':
      return vocabulary.check;
    default:
      return null;
  }
}
