/** What sandboxes used, looked at every few seconds and kept for an hour, in memory. */
import type { Logger } from 'pino';
import type { SandboxEdge } from '../../../edge/client/index.ts';
import type { Clock, SandboxId, SandboxInfo } from '../../../sdk/index.ts';
import { withUse } from '../../sandboxes/held.ts';
import { cpuShare } from '../envd/metrics.ts';

/** As E2B's API shows it. */
export interface SandboxMetric {
  readonly timestamp: string;
  readonly timestampUnix: number;
  readonly cpuCount: number;
  /** Of all processors together. */
  readonly cpuUsedPct: number;
  /** Bytes, like all below. */
  readonly memUsed: number;
  readonly memTotal: number;
  readonly memCache: number;
  readonly diskUsed: number;
  readonly diskTotal: number;
}

/** How many lived at once, and how many were started since the look before. */
export interface FleetSample {
  readonly at: number;
  readonly running: number;
  readonly started: number;
}

export interface MetricsHistory extends Disposable {
  /** Begins to look. */
  start(): void;
  /** Oldest first; instants in epoch milliseconds, both included. */
  of(sandbox: string, from: number, to: number): SandboxMetric[];
  latest(sandbox: string): SandboxMetric | undefined;
  /** Oldest first. */
  fleet(from: number, to: number): FleetSample[];
}

const sampleMs = 5000;
const keptSamples = 720;
/** Guests that are asked at the same time. */
const concurrency = 4;
/** A guest that does not answer is left out this time. */
const answerMs = 2000;

/** Owns one timer and what it saw. */
export function createMetricsHistory(deps: {
  readonly sandboxes: SandboxEdge;
  readonly clock: Clock;
  readonly log: Logger;
}): MetricsHistory {
  const { sandboxes: edge, clock, log } = deps;
  const samples = new Map<string, SandboxMetric[]>();
  const fleet: FleetSample[] = [];
  const stop = new AbortController();
  let cancel: (() => void) | undefined;
  let lookedAt = clock.now();

  const sample = async ({ id }: SandboxInfo): Promise<void> => {
    const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(answerMs)]);
    try {
      const found = await withUse({ edge, id: id as SandboxId, signal }, ({ channel }, until) =>
        channel.metrics({ signal: AbortSignal.any([signal, until]) }),
      );
      const at = clock.now();
      const kept = samples.get(id) ?? [];
      samples.set(id, kept);
      kept.push({
        timestamp: new Date(at).toISOString(),
        timestampUnix: Math.floor(at / 1000),
        cpuCount: found.cpuCount,
        cpuUsedPct: cpuShare(found),
        memUsed: found.memoryUsedBytes,
        memTotal: found.memoryTotalBytes,
        memCache: found.memoryCacheBytes,
        diskUsed: found.diskUsedBytes,
        diskTotal: found.diskTotalBytes,
      });
      if (kept.length > keptSamples) kept.shift();
    } catch {
      // It ended, paused or is busy: there is nothing to tell of this moment.
    }
  };

  const look = async (): Promise<void> => {
    const all = await edge.list({});
    const now = clock.now();
    const started = all.filter(({ createdAt }) => createdAt > lookedAt).length;
    lookedAt = now;
    const running = all.filter(({ state }) => state === 'running');
    fleet.push({ at: now, running: running.length, started });
    if (fleet.length > keptSamples) fleet.shift();
    const known = new Set(all.map(({ id }) => id));
    for (const id of samples.keys()) if (!known.has(id)) samples.delete(id);
    const waiting = [...running];
    const worker = async () => {
      for (let next = waiting.pop(); next !== undefined && !stop.signal.aborted; next = waiting.pop())
        await sample(next);
    };
    await Promise.all(Array.from({ length: concurrency }, worker));
  };

  const schedule = (delayMs: number) => {
    cancel = clock.schedule(delayMs, () => {
      look()
        .catch((err: unknown) => log.warn({ err }, 'sandboxes not sampled'))
        .finally(() => {
          if (!stop.signal.aborted) schedule(sampleMs);
        });
    });
  };

  return {
    start: () => schedule(sampleMs),
    of: (sandbox, from, to) =>
      (samples.get(sandbox) ?? []).filter(({ timestamp }) => {
        const at = Date.parse(timestamp);
        return at >= from && at <= to;
      }),
    latest: (sandbox) => samples.get(sandbox)?.at(-1),
    fleet: (from, to) => fleet.filter(({ at }) => at >= from && at <= to),
    [Symbol.dispose]() {
      stop.abort();
      cancel?.();
    },
  };
}
