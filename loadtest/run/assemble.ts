import { type CheckReport, checkNames } from '../check/check.ts';
import type { Overhead } from '../driver/prime.ts';
import { evaluate, type Measurements } from '../gate/evaluate.ts';
import type { Threshold } from '../gate/expression.ts';
import { judgeGenerator } from '../gate/saturation.ts';
import type { Recorder } from '../record/recorder.ts';
import { type Result, resultSchemaName, type TimelinePoint } from '../record/result.ts';
import type { Timeline } from '../record/timeline.ts';
import type { GaugeName, ResourceSample } from '../resource/gauges.ts';
import type { LeakReport } from '../resource/leaks.ts';
import type { Scenario } from '../scenario/define.ts';
import { publicPlan, type RunPlan } from './plan.ts';

/** What a run gathered, before it is judged. */
export interface Gathered {
  readonly runId: string;
  readonly startedAt: number;
  readonly plan: RunPlan;
  readonly scenario: Scenario;
  readonly schedule: string;
  readonly measuredMs: number;
  readonly isAborted: boolean;
  readonly environment: Result['environment'];
  readonly recorder: Recorder;
  readonly repeats: Result['repeats'];
  readonly resources: readonly ResourceSample[];
  readonly checks: readonly CheckReport[];
  readonly leaks: LeakReport | null;
  readonly backgroundFailures: readonly string[];
  readonly cpuMs: number;
  readonly eventLoopUtilization: number;
  readonly preemptions: number;
  readonly overhead: Overhead;
  readonly rawLinesDropped: number;
}

/** Judges a run and writes its result document. */
export function assembleResult(gathered: Gathered, thresholds: readonly Threshold[]): Result {
  const { recorder, plan } = gathered;
  const verdicts = thresholds.map((threshold) => evaluate(threshold, measurementsOf(gathered)));
  const isClosed = plan.loop.kind === 'closed';
  const lag = recorder.series.select('lag');
  const { counters } = recorder;
  return {
    schema: resultSchemaName,
    run: {
      id: gathered.runId,
      startedAt: gathered.startedAt,
      measuredMs: Math.round(gathered.measuredMs),
      isAborted: gathered.isAborted,
      scenario: gathered.scenario.name,
      proves: gathered.scenario.proves,
      loop: isClosed ? 'closed' : 'open',
      schedule: gathered.schedule,
      plan: publicPlan(plan),
    },
    environment: gathered.environment,
    generator: {
      workers: plan.workers,
      scheduled: counters.scheduled,
      sent: counters.sent,
      late: counters.late,
      droppedInFlight: counters.droppedInFlight,
      droppedBehind: counters.droppedBehind,
      warmup: counters.warmup,
      lag: isClosed ? null : lag.summary(),
      cpuUsPerRequest: counters.sent === 0 ? 0 : Math.round((gathered.cpuMs * 1000) / counters.sent),
      eventLoopUtilization: Math.round(gathered.eventLoopUtilization * 1000) / 1000,
      preemptions: gathered.preemptions,
      overhead: gathered.overhead,
      rawLinesDropped: gathered.rawLinesDropped,
    },
    outcomes: { ...recorder.outcomes },
    bodyBytes: counters.bodyBytes,
    series: [...recorder.series.values()]
      .filter(({ durations, metric }) => durations.count > 0 && !(isClosed && metric === 'lag'))
      .map(({ metric, labels, durations }) => ({
        metric,
        labels: { ...labels },
        summary: durations.summary(),
        histogram: durations.encode(),
      })),
    timeline: { intervalMs: recorder.timeline.intervalMs, points: timelinePoints(recorder.timeline) },
    errors: [...recorder.errors.values()].sort((left, right) => right.count - left.count),
    repeats: gathered.repeats,
    resources: gathered.resources.map(({ atMs, values }) => ({ atMs, values: { ...values } })),
    checks: gathered.checks.map((check) => ({
      ...check,
      promise: checkNames[check.name],
      samples: [...check.samples],
    })),
    leaks: gathered.leaks === null ? null : { ...gathered.leaks, leaked: [...gathered.leaks.leaked] },
    thresholds: verdicts,
    verdict: judge(gathered, isClosed, lag.percentileMs(99), verdicts),
  };
}

function judge(
  gathered: Gathered,
  isClosed: boolean,
  lagP99Ms: number,
  verdicts: Result['thresholds'],
): Result['verdict'] {
  const { counters, outcomes } = gathered.recorder;
  const reasons: string[] = [];
  if (gathered.isAborted) reasons.push('the run was ended before its schedule');
  if (!isClosed) {
    const schedule = { ...counters, lagP99Ms: Number.isNaN(lagP99Ms) ? 0 : lagP99Ms };
    reasons.push(...judgeGenerator(schedule, gathered.plan.limits));
  }
  if (counters.sent > 0 && outcomes.ok + outcomes.refused === 0) reasons.push('no request was answered');
  for (const failure of gathered.backgroundFailures) reasons.push(`beside the schedule: ${failure}`);
  for (const check of gathered.checks) {
    if (check.violations > 0) {
      const [first] = check.samples;
      reasons.push(
        `${check.violations} violations of “${checkNames[check.name]}”, first: ${first?.request} ${first?.detail}`,
      );
    }
  }
  for (const leak of gathered.leaks?.leaked ?? []) reasons.push(`leak: ${leak}`);
  for (const threshold of verdicts) {
    if (threshold.verdict !== 'met')
      reasons.push(`threshold ${threshold.verdict}: ${threshold.expression} (${threshold.shown})`);
  }
  return { isPassed: reasons.length === 0, reasons };
}

/** What thresholds look at. */
function measurementsOf(gathered: Gathered): Measurements {
  const { recorder } = gathered;
  return {
    series: recorder.series,
    outcomes: recorder.outcomes,
    errorCounts: new Map([...recorder.errors.values()].map((error) => [error.code, error.count])),
    scheduled: recorder.counters.scheduled,
    dropped: recorder.counters.droppedBehind + recorder.counters.droppedInFlight,
    late: recorder.counters.late,
    measuredMs: gathered.measuredMs,
    checks: new Map(gathered.checks.map((check) => [check.name, check])),
    gauges: summarizeGauges(gathered.resources),
  };
}

function summarizeGauges(samples: readonly ResourceSample[]): Measurements['gauges'] {
  const values = new Map<GaugeName, number[]>();
  for (const sample of samples) {
    for (const [name, value] of Object.entries(sample.values) as [GaugeName, number][]) {
      values.set(name, [...(values.get(name) ?? []), value]);
    }
  }
  return new Map(
    [...values].map(([name, all]) => [
      name,
      {
        min: Math.min(...all),
        max: Math.max(...all),
        mean: all.reduce((sum, value) => sum + value, 0) / all.length,
        last: all.at(-1)!,
      },
    ]),
  );
}

function timelinePoints(timeline: Timeline): TimelinePoint[] {
  const round = (ms: number) => Math.round(ms * 1000) / 1000;
  return timeline.entries().map((cell, index) => ({
    atMs: index * timeline.intervalMs,
    sent: cell.sent,
    dropped: cell.dropped,
    maxLagMs: round(cell.maxLagMs),
    outcomes: { ...cell.outcomes },
    latency: Object.fromEntries(
      Object.entries(cell.latency).map(([lane, durations]) => [
        lane,
        {
          count: durations.count,
          p50Ms: durations.trustedMs(50),
          p95Ms: durations.trustedMs(95),
          p99Ms: durations.trustedMs(99),
          maxMs: round(durations.maxMs),
        },
      ]),
    ),
    phases:
      cell.phaseCount === 0
        ? null
        : {
            queueMs: round(cell.queueMs / cell.phaseCount),
            restoreMs: round(cell.restoreMs / cell.phaseCount),
            execMs: round(cell.execMs / cell.phaseCount),
            otherMs: round(
              Math.max(0, cell.phaseTotalMs - cell.queueMs - cell.restoreMs - cell.execMs) / cell.phaseCount,
            ),
          },
  }));
}
