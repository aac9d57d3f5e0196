import { z } from 'zod';
import { checkNames } from '../check/check.ts';
import { outcomes } from './labels.ts';
import { durationMetrics } from './series.ts';

/** Name and version of the result document. A reader refuses what it doesn't know. */
export const resultSchemaName = 'snapgate.loadtest/2';

const ms = z.number();
const maybeMs = z.number().nullable();
const count = z.number().int().min(0);

const summarySchema = z.strictObject({
  count,
  minMs: maybeMs,
  meanMs: maybeMs,
  p50Ms: maybeMs,
  p90Ms: maybeMs,
  p95Ms: maybeMs,
  p99Ms: maybeMs,
  p999Ms: maybeMs,
  maxMs: maybeMs,
});

const holdingsSchema = z
  .strictObject({ machines: count, serving: count, waiting: count, floor: count })
  .nullable();

/** One point of the timeline; percentiles only where there are enough samples in the interval. */
const timelinePointSchema = z.strictObject({
  atMs: ms,
  sent: count,
  dropped: count,
  maxLagMs: ms,
  outcomes: z.record(z.enum(outcomes), count),
  latency: z.record(
    z.string(),
    z.strictObject({ count, p50Ms: maybeMs, p95Ms: maybeMs, p99Ms: maybeMs, maxMs: ms }),
  ),
  /** Means over the answers that named their phases; `null` without any. `otherMs` is what no phase explains. */
  phases: z.strictObject({ queueMs: ms, restoreMs: ms, execMs: ms, otherMs: ms }).nullable(),
});

/** The result of a run: everything a report shows, and histograms so that results can be merged and compared. */
export const resultSchema = z.strictObject({
  schema: z.literal(resultSchemaName),
  run: z.strictObject({
    id: z.string(),
    startedAt: z.number().int().describe('epoch ms'),
    measuredMs: ms.describe('length of what was measured, all repeats together, warm-up excluded'),
    isAborted: z.boolean(),
    scenario: z.string(),
    proves: z.string(),
    loop: z.enum(['open', 'closed']),
    schedule: z.string(),
    plan: z.record(z.string(), z.unknown()).describe('the whole plan without keys'),
  }),
  environment: z.strictObject({
    harness: z.string(),
    revision: z.string().nullable(),
    node: z.string(),
    kernel: z.string(),
    cpu: z.string(),
    cores: count,
    memoryBytes: count,
    loadAverage: z.number().describe('of the last minute, before the run'),
    isSameHost: z.boolean().describe('generator and server share this host'),
    server: z
      .array(
        z.strictObject({
          node: z.string(),
          accelerator: z.string(),
          reason: z.string(),
          maxMachines: count,
        }),
      )
      .describe('empty when the server does not say'),
  }),
  generator: z.strictObject({
    workers: count,
    scheduled: count,
    sent: count,
    late: count,
    droppedInFlight: count,
    droppedBehind: count,
    warmup: count,
    lag: summarySchema.nullable().describe('null in a closed loop, which has no schedule'),
    cpuUsPerRequest: ms,
    eventLoopUtilization: z.number(),
    preemptions: count.describe(
      'times the kernel took the core from the generator: why it lags on a busy host',
    ),
    overhead: z
      .strictObject({ p50Ms: ms, p99Ms: ms, samples: count })
      .describe('service time against a server in this process; subtracted from nothing'),
    rawLinesDropped: count,
  }),
  outcomes: z.record(z.enum(outcomes), count),
  bodyBytes: count,
  series: z.array(
    z.strictObject({
      metric: z.enum(Object.keys(durationMetrics) as [string, ...string[]]),
      labels: z.record(z.string(), z.string()),
      summary: summarySchema,
      histogram: z
        .string()
        .describe('sum, least and most in ms, a colon, compressed HDR histogram of microseconds in base64'),
    }),
  ),
  timeline: z.strictObject({ intervalMs: ms, points: z.array(timelinePointSchema) }),
  errors: z.array(
    z.strictObject({
      code: z.string(),
      outcome: z.enum(outcomes),
      count,
      firstSequence: z.number().int(),
      firstAtMs: ms,
      firstStatus: count,
      firstDetail: z.string(),
    }),
  ),
  repeats: z.array(
    z.strictObject({
      startedAt: z.number().int(),
      requests: count,
      ok: count,
      /** Percentiles by lane: `all`, start types and steps; what repeats differ in is their spread. */
      lanes: z.record(z.string(), z.strictObject({ p50Ms: maybeMs, p95Ms: maybeMs, p99Ms: maybeMs })),
    }),
  ),
  resources: z.array(z.strictObject({ atMs: ms, values: z.record(z.string(), z.number()) })),
  checks: z.array(
    z.strictObject({
      name: z.enum(Object.keys(checkNames) as [string, ...string[]]),
      promise: z.string(),
      examined: count,
      violations: count,
      limits: z.string(),
      samples: z.array(
        z.strictObject({
          sequence: z.number().int(),
          atMs: ms,
          request: z.string(),
          machine: z.string(),
          detail: z.string(),
        }),
      ),
    }),
  ),
  leaks: z
    .strictObject({
      before: holdingsSchema,
      after: holdingsSchema,
      waitedMs: ms,
      leaked: z.array(z.string()),
    })
    .nullable(),
  thresholds: z.array(
    z.strictObject({
      expression: z.string(),
      verdict: z.enum(['met', 'missed', 'undecided']),
      value: z.number().nullable(),
      limit: z.number(),
      dimension: z.enum(['ms', 'bytes', 'perSecond', 'share', 'number']),
      shown: z.string(),
    }),
  ),
  verdict: z.strictObject({
    isPassed: z.boolean(),
    /** Why it failed, worst first: the generator, correctness, leaks, thresholds. */
    reasons: z.array(z.string()),
  }),
});

export type Result = z.output<typeof resultSchema>;
export type TimelinePoint = z.output<typeof timelinePointSchema>;
