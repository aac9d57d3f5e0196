import { GatewayError } from '../../sdk/index.ts';
import { findMetric, type LabelVocabulary, labelValues, type MetricRef, metricNames } from './catalogue.ts';

/** How a metric becomes one number. `percentile` carries 0–100. */
type Aggregate =
  | { readonly kind: 'percentile'; readonly percentile: number }
  | { readonly kind: 'min' | 'max' | 'mean' | 'sd' | 'count' | 'rate' | 'ratio' | 'last' };

const comparisons = ['<=', '>=', '==', '!=', '<', '>'] as const;
export type Comparison = (typeof comparisons)[number];

/** The dimension of a threshold's number: milliseconds, bytes, per second, share of one, or a plain number. */
export type Dimension = 'ms' | 'bytes' | 'perSecond' | 'share' | 'number';

/** A parsed and validated threshold. `limit` is in the base unit of `dimension`. */
export interface Threshold {
  readonly text: string;
  readonly aggregate: Aggregate;
  readonly metric: MetricRef;
  readonly labels: Readonly<Record<string, readonly string[]>>;
  readonly comparison: Comparison;
  readonly limit: number;
  readonly dimension: Dimension;
}

const shape =
  /^\s*([a-z]+[0-9]*(?:\.[0-9]+)?)\s*\(\s*([a-z_]+)\s*(?:\{([^{}]*)\}\s*)?\)\s*(<=|>=|==|!=|<|>)\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Zµ%/]*)\s*$/;

const units: Readonly<Record<string, readonly [Dimension, number] | undefined>> = {
  us: ['ms', 0.001],
  µs: ['ms', 0.001],
  ms: ['ms', 1],
  s: ['ms', 1000],
  m: ['ms', 60_000],
  B: ['bytes', 1],
  KiB: ['bytes', 1024],
  MiB: ['bytes', 1024 ** 2],
  GiB: ['bytes', 1024 ** 3],
  '/s': ['perSecond', 1],
  '%': ['share', 0.01],
  '': ['number', 1],
};

const dimensionExamples: Readonly<Record<Dimension, string>> = {
  ms: '50ms',
  bytes: '512MiB',
  perSecond: '900/s',
  share: '1%',
  number: '0',
};

/**
 * Parses `p99(latency{start=ready}) < 50ms`. Everything that could make a threshold silently pass is refused with
 * `invalid_request`: unknown functions, metrics, labels and label values, and a missing or wrong unit.
 */
export function parseThreshold(text: string, vocabulary: LabelVocabulary): Threshold {
  const match = shape.exec(text);
  if (match === null) {
    throw refuse(
      text,
      'write it as `function(metric{label=value}) < number unit`, such as `p99(latency{start=ready}) < 50ms`',
    );
  }
  const [, functionName, metricName, labelText, comparison, number, unit] = match;
  const aggregate = parseAggregate(text, functionName!);
  const metric = findMetric(metricName!);
  if (metric === undefined) {
    throw refuse(text, `unknown metric \`${metricName}\`; known are ${metricNames().join(', ')}`);
  }
  const dimension = dimensionOf(text, aggregate, metric);
  const given = Object.hasOwn(units, unit!) ? units[unit!] : undefined;
  const isPlainShare = dimension === 'share' && given?.[0] === 'number';
  if (given === undefined || (given[0] !== dimension && !isPlainShare)) {
    throw refuse(
      text,
      `\`${functionName}(${metricName})\` is compared with something like ${dimensionExamples[dimension]}`,
    );
  }
  return {
    text: text.trim(),
    aggregate,
    metric,
    labels: parseLabels(text, labelText ?? '', metric, vocabulary),
    comparison: comparison as Comparison,
    limit: Number(number) * given[1],
    dimension,
  };
}

function parseAggregate(text: string, name: string): Aggregate {
  const percentile = /^p([0-9]{1,2}(?:\.[0-9]+)?)$/.exec(name);
  if (percentile !== null && Number(percentile[1]) > 0) {
    return { kind: 'percentile', percentile: Number(percentile[1]) };
  }
  const plain = ['min', 'max', 'mean', 'sd', 'count', 'rate', 'ratio', 'last'] as const;
  const kind = plain.find((each) => each === name);
  if (kind === undefined)
    throw refuse(text, `unknown function \`${name}\`; known are pNN, ${plain.join(', ')}`);
  return { kind };
}

function dimensionOf(text: string, aggregate: Aggregate, metric: MetricRef): Dimension {
  const allowed: Readonly<Record<MetricRef['kind'], readonly Aggregate['kind'][]>> = {
    duration: ['percentile', 'min', 'max', 'mean', 'sd', 'count'],
    count: ['count', 'rate', 'ratio'],
    gauge: ['min', 'max', 'mean', 'last'],
  };
  if (!allowed[metric.kind].includes(aggregate.kind)) {
    throw refuse(text, `\`${metric.name}\` takes ${allowed[metric.kind].join(', ')}`);
  }
  if (aggregate.kind === 'count') return 'number';
  if (aggregate.kind === 'rate') return 'perSecond';
  if (aggregate.kind === 'ratio') return 'share';
  if (metric.kind === 'gauge') return metric.unit;
  return 'ms';
}

function parseLabels(
  text: string,
  labelText: string,
  metric: MetricRef,
  vocabulary: LabelVocabulary,
): Record<string, readonly string[]> {
  const labels: Record<string, readonly string[]> = {};
  if (labelText.trim() === '') return labels;
  for (const pair of labelText.split(',')) {
    const match = /^\s*([a-z]+)\s*=\s*([^\s=]+)\s*$/.exec(pair);
    if (match === null)
      throw refuse(text, `\`${pair.trim()}\` is no \`label=value\` (or \`label=one|other\`)`);
    const [, label, valueText] = match;
    if (!metric.labels.includes(label!)) {
      const known = metric.labels.length === 0 ? 'no labels' : metric.labels.join(', ');
      throw refuse(text, `\`${metric.name}\` has no label \`${label}\`; it has ${known}`);
    }
    if (Object.hasOwn(labels, label!)) throw refuse(text, `label \`${label}\` is given twice`);
    const values = valueText!.split('|');
    const known = labelValues(label!, vocabulary);
    const unknown = known === null ? undefined : values.find((value) => !known.includes(value));
    if (known !== null && unknown !== undefined) {
      throw refuse(
        text,
        `label \`${label}\` has no value \`${unknown}\` here; it has ${known.join(', ') || 'none'}`,
      );
    }
    labels[label!] = values;
  }
  return labels;
}

const refuse = (text: string, reason: string): GatewayError =>
  new GatewayError('invalid_request', `threshold \`${text.trim()}\`: ${reason}`, { field: 'threshold' });
