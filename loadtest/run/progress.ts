import type { ClosableLauncher } from '../driver/http-launcher.ts';
import type { Recorder } from '../record/recorder.ts';

/** Counts so far, for a live view. */
export interface Progress {
  readonly atMs: number;
  readonly sent: number;
  readonly ok: number;
  readonly refused: number;
  readonly failed: number;
  readonly timeouts: number;
  readonly dropped: number;
  readonly inFlight: number;
  /** Of the whole run so far; `null` with too few samples. */
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
}

/** The counts of a generator at one instant. */
export function progressOf(recorder: Recorder, launcher: ClosableLauncher, atMs: number): Progress {
  const latency = recorder.series.select('latency', { outcome: ['ok', 'timeout'] });
  return {
    atMs,
    sent: recorder.counters.sent,
    ok: recorder.outcomes.ok,
    refused: recorder.outcomes.refused,
    failed: recorder.outcomes.failed,
    timeouts: recorder.outcomes.timeout,
    dropped: recorder.counters.droppedBehind + recorder.counters.droppedInFlight,
    inFlight: launcher.inFlight,
    p50Ms: latency.trustedMs(50),
    p99Ms: latency.trustedMs(99),
  };
}
