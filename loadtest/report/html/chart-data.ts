import { startLabels } from '../../record/labels.ts';
import type { Result } from '../../record/result.ts';
import { type GaugeName, gauges } from '../../resource/gauges.ts';
import { lanesOf, percentileCurve } from '../figures.ts';

/** One curve: `values` beside the chart's own x column; `null` is a gap. */
interface Curve {
  readonly label: string;
  /** Names a colour of the style sheet, the same for a start type in every chart. */
  readonly color: string;
  readonly values: readonly (number | null)[];
}

/** One chart, as the page's script draws it. */
export interface Chart {
  readonly id: string;
  readonly x: 'seconds' | 'percentile';
  readonly y: 'ms' | 'perSecond' | 'bytes' | 'number';
  readonly isLog: boolean;
  /** Values are drawn on top of each other. */
  readonly isStacked: boolean;
  readonly xs: readonly number[];
  readonly curves: readonly Curve[];
}

/** Every chart that the result has data for. */
export function chartData(result: Result): Chart[] {
  const charts = [
    latencyOverTime(result),
    percentileChart(result),
    phaseStack(result),
    requestRates(result),
    refusals(result),
    schedule(result),
    memory(result),
    machines(result),
  ];
  return charts.filter((chart) => chart.xs.length > 0 && chart.curves.length > 0);
}

const seconds = (result: Result) => result.timeline.points.map((point) => point.atMs / 1000);
const timeChart = { x: 'seconds', isStacked: false } as const;

function lanesOverTime(result: Result): string[] {
  const found = new Set(result.timeline.points.flatMap((point) => Object.keys(point.latency)));
  const known = startLabels.filter((start) => found.has(start));
  return [...known, ...[...found].filter((lane) => !known.includes(lane as (typeof known)[number]))];
}

const colorOf = (lane: string, index: number): string =>
  (startLabels as readonly string[]).includes(lane) ? lane : `lane${index % 8}`;

/** Median as a line and p99 as a dashed one; the highest value where an interval has too few samples for a p99. */
function latencyOverTime(result: Result): Chart {
  const { points } = result.timeline;
  const curves = lanesOverTime(result).flatMap((lane, index) => [
    {
      label: `${lane} p50`,
      color: colorOf(lane, index),
      values: points.map(({ latency }) => latency[lane]?.p50Ms ?? latency[lane]?.maxMs ?? null),
    },
    {
      label: `${lane} p99`,
      color: colorOf(lane, index),
      values: points.map(({ latency }) => latency[lane]?.p99Ms ?? latency[lane]?.maxMs ?? null),
    },
  ]);
  return { ...timeChart, id: 'latency', y: 'ms', isLog: true, xs: seconds(result), curves };
}

function percentileChart(result: Result): Chart {
  const lanes = lanesOf(result);
  const steps = lanes.filter(({ kind }) => kind === 'step');
  const used = steps.length > 0 ? steps : lanes.filter(({ kind }) => kind === 'start');
  const longest = used
    .map(({ durations }) => percentileCurve(durations))
    .reduce((best, curve) => (curve.length > best.length ? curve : best), []);
  return {
    id: 'percentiles',
    x: 'percentile',
    y: 'ms',
    isLog: true,
    isStacked: false,
    // Drawn over the number of nines, where a tail is as wide as the rest.
    xs: longest.map(({ percentile }) => -Math.log10(Math.max(1e-9, 1 - percentile / 100))),
    curves: used.map(({ lane, durations }, index) => ({
      label: lane,
      color: colorOf(lane, index),
      values: longest.map(({ percentile }) =>
        (1 - percentile / 100) * durations.count < 1 ? null : durations.percentileMs(percentile),
      ),
    })),
  };
}

function phaseStack(result: Result): Chart {
  const { points } = result.timeline;
  const phases = ['queueMs', 'restoreMs', 'execMs', 'otherMs'] as const;
  const has = points.some((point) => point.phases !== null);
  return {
    ...timeChart,
    isStacked: true,
    id: 'phases',
    y: 'ms',
    isLog: false,
    xs: seconds(result),
    curves: has
      ? phases.map((phase) => ({
          label: phase.slice(0, -2),
          color: phase.slice(0, -2),
          values: points.map((point) => point.phases?.[phase] ?? null),
        }))
      : [],
  };
}

function rate(result: Result, label: string, color: string, pick: (point: Point) => number): Curve {
  // Repeats lie on top of each other in the timeline.
  const perSecond = 1000 / (result.timeline.intervalMs * Math.max(1, result.repeats.length));
  return { label, color, values: result.timeline.points.map((point) => pick(point) * perSecond) };
}
type Point = Result['timeline']['points'][number];

const requestRates = (result: Result): Chart => ({
  ...timeChart,
  id: 'rates',
  y: 'perSecond',
  isLog: false,
  xs: seconds(result),
  curves: [
    rate(result, 'scheduled', 'scheduled', (point) => point.sent + point.dropped),
    rate(result, 'answered', 'ok', (point) => point.outcomes.ok ?? 0),
  ],
});

const refusals = (result: Result): Chart => ({
  ...timeChart,
  id: 'refusals',
  y: 'perSecond',
  isLog: false,
  xs: seconds(result),
  curves: [
    rate(result, 'refused', 'refused', (point) => point.outcomes.refused ?? 0),
    rate(result, 'failed', 'failed', (point) => point.outcomes.failed ?? 0),
    rate(result, 'timed out', 'timeout', (point) => point.outcomes.timeout ?? 0),
    rate(result, 'dropped', 'dropped', (point) => point.dropped),
  ],
});

const schedule = (result: Result): Chart => ({
  ...timeChart,
  id: 'lag',
  y: 'ms',
  isLog: false,
  xs: seconds(result),
  curves:
    result.run.loop === 'closed'
      ? []
      : [
          {
            label: 'latest send',
            color: 'scheduled',
            values: result.timeline.points.map((point) => point.maxLagMs),
          },
        ],
});

function gaugeChart(result: Result, id: string, y: Chart['y'], names: readonly GaugeName[]): Chart {
  const used = names.filter((name) => result.resources.some((sample) => sample.values[name] !== undefined));
  return {
    ...timeChart,
    id,
    y,
    isLog: false,
    xs: result.resources.map((sample) => sample.atMs / 1000),
    curves: used.map((name, index) => ({
      label: gauges[name].title,
      color: `lane${index}`,
      values: result.resources.map((sample) => sample.values[name] ?? null),
    })),
  };
}

const memory = (result: Result): Chart =>
  gaugeChart(result, 'memory', 'bytes', [
    'memory_per_machine_bytes',
    'memory_private_bytes',
    'memory_pss_bytes',
  ]);

const machines = (result: Result): Chart =>
  gaugeChart(result, 'machines', 'number', [
    'machines',
    'machines_ready',
    'machines_blank',
    'machines_leased',
  ]);
