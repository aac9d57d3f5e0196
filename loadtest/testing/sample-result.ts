import { Durations } from '../record/histogram.ts';
import { type Result, resultSchema, resultSchemaName } from '../record/result.ts';

/** A small valid result for tests of what reads results. `latency` goes under start type `ready`. */
export function sampleResult(
  over: {
    readonly latency?: Durations;
    readonly schedule?: string;
    readonly checks?: Result['checks'];
    readonly errors?: Result['errors'];
    readonly reasons?: readonly string[];
  } = {},
): Result {
  const latency = over.latency ?? new Durations();
  const reasons = [...(over.reasons ?? [])];
  const summary = latency.summary();
  return resultSchema.parse({
    schema: resultSchemaName,
    run: {
      id: 'sample',
      startedAt: 1_700_000_000_000,
      measuredMs: 1_000,
      isAborted: false,
      scenario: 'invoke',
      proves: 'how a report looks',
      loop: 'open',
      schedule: over.schedule ?? 'constant 10/s for 1 s',
      plan: { seed: 1, templates: ['hello'], scenarioOptions: {} },
    },
    environment: {
      harness: '0.1.0',
      revision: null,
      node: 'v24.0.0',
      kernel: 'Linux 6.1',
      cpu: 'cpu',
      cores: 2,
      memoryBytes: 1024 ** 3,
      loadAverage: 0,
      isSameHost: true,
      server: [],
    },
    generator: {
      workers: 1,
      scheduled: latency.count,
      sent: latency.count,
      late: 0,
      droppedInFlight: 0,
      droppedBehind: 0,
      warmup: 0,
      lag: summary,
      cpuUsPerRequest: 50,
      eventLoopUtilization: 0.1,
      preemptions: 0,
      overhead: { p50Ms: 0.05, p99Ms: 0.2, samples: 100 },
      rawLinesDropped: 0,
    },
    outcomes: { ok: latency.count, refused: 0, failed: 0, timeout: 0 },
    bodyBytes: 0,
    series:
      latency.count === 0
        ? []
        : [
            {
              metric: 'latency',
              labels: { start: 'ready', outcome: 'ok' },
              summary,
              histogram: latency.encode(),
            },
          ],
    timeline: { intervalMs: 1_000, points: [] },
    errors: over.errors ?? [],
    repeats: [{ startedAt: 1_700_000_000_000, requests: latency.count, ok: latency.count, lanes: {} }],
    resources: [],
    checks: over.checks ?? [],
    leaks: null,
    thresholds: [],
    verdict: { isPassed: reasons.length === 0, reasons },
  });
}
