/**
 * `npm run bench:overload [seconds of flood]`: a node at ten times its sustainable rate. What it serves, how long those wait
 * whom it admits, how fast it refuses the rest, and how soon it is itself again. The function sleeps, so that the machines of
 * the pool are what is short, and not the cores which the load generator shares with them.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawnUp } from '../../gateway/testing/drill-node.ts';
import { loadScenario, type Result, type RunPlanInput, run, runPlanSchema } from '../index.ts';
import {
  benchDirectory,
  median,
  publishFolder,
  quantile,
  require,
  startBenchNode,
  writeResult,
} from './bench-node.ts';

const floodSeconds = Number(process.argv[2] ?? 20);
const calmSeconds = 10;
/** The time by which latency must be normal again after the flood. */
const recoverySeconds = 5;
const machines = 4;
const workMs = 100;
const queue = { depth: 16, timeoutMs: 1_000 };
const template = 'bench-overload';
const floodFactor = 10;

const service = await startBenchNode();
await publishFolder(service, 'loadtest/probe-template', {
  name: template,
  pool: { ready: machines, blank: 0, max: machines },
  admission: { concurrency: 1, queue },
  ttl: { idleMs: 600_000, lifetimeMs: 3_600_000 },
});
await service.close();

interface Sample {
  readonly intendedMs: number;
  readonly latencyMs: number;
  readonly serviceMs: number;
  readonly outcome: string;
  readonly status: number;
  readonly error: string | null;
}
const scenario = await loadScenario('invoke');
const directory = await mkdtemp(join(tmpdir(), 'overload-'));
const node = await spawnUp(await benchDirectory());

async function measure(
  loop: RunPlanInput['loop'],
): Promise<{ readonly result: Result; readonly samples: readonly Sample[] }> {
  const rawFile = join(directory, 'raw.ndjson');
  const plan = runPlanSchema.parse({
    ...{ scenario: 'invoke', url: node.url, apiKeys: [node.apiKey], templates: [template], loop },
    scenarioOptions: { path: `/?probe=x&workMs=${workMs}` },
    sampleEveryMs: 0,
  });
  const result = await run(plan, scenario, { rawFile });
  const lines = (await readFile(rawFile, 'utf8')).split('\n').filter(Boolean);
  const samples = lines.map((line) => {
    const { intendedMs, sentMs, endedMs, outcome, status, error } = JSON.parse(line);
    return {
      intendedMs,
      latencyMs: endedMs - intendedMs,
      serviceMs: endedMs - sentMs,
      outcome,
      status,
      error,
    };
  });
  return { result, samples };
}

try {
  // All machines are woken and used once before anything counts.
  await measure({ kind: 'closed', concurrency: machines, durationMs: 2_000 });
  const peak = await measure({ kind: 'closed', concurrency: 2 * machines, durationMs: 6_000 });
  const peakPerSecond = (peak.result.outcomes.ok ?? 0) / (peak.result.run.measuredMs / 1000);
  const calmPerSecond = peakPerSecond / 2;
  const floodPerSecond = floodFactor * peakPerSecond;
  const floodFromMs = calmSeconds * 1000;
  const floodToMs = floodFromMs + floodSeconds * 1000;
  const { result, samples } = await measure({
    kind: 'open',
    profile: {
      kind: 'step',
      steps: [
        { ratePerSecond: calmPerSecond, durationMs: floodFromMs },
        { ratePerSecond: floodPerSecond, durationMs: floodSeconds * 1000 },
        { ratePerSecond: calmPerSecond, durationMs: (recoverySeconds + calmSeconds) * 1000 },
      ],
    },
  });
  const during = (fromMs: number, toMs: number) =>
    samples.filter(({ intendedMs }) => intendedMs >= fromMs && intendedMs < toMs);
  const latencies = (some: readonly Sample[]) =>
    some.filter(({ outcome }) => outcome === 'ok').map(({ latencyMs }) => latencyMs);
  const calm = latencies(during(0, floodFromMs));
  const flood = during(floodFromMs, floodToMs);
  const admitted = latencies(flood);
  const refusals = flood.filter(({ outcome }) => outcome === 'refused').map(({ serviceMs }) => serviceMs);
  const recovered = during(floodToMs + recoverySeconds * 1000, Number.POSITIVE_INFINITY);
  const undeliberate = samples.filter(({ outcome }) => outcome === 'failed' || outcome === 'timeout');
  const figures = {
    peakPerSecond,
    floodPerSecond,
    floodServedPerSecond: admitted.length / floodSeconds,
    calmMs: { p50: median(calm), p95: quantile(calm, 0.95) },
    admittedMs: { p50: median(admitted), p99: quantile(admitted, 0.99) },
    refusalMs: { p50: median(refusals), p99: quantile(refusals, 0.99) },
    refused: refusals.length,
    failed: undeliberate.map(({ status, error }) => ({ status, error })).slice(0, 20),
    recoveredMs: { p50: median(latencies(recovered)), p95: quantile(latencies(recovered), 0.95) },
    refusedAfterRecovery: recovered.filter(({ outcome }) => outcome !== 'ok').length,
    generator: result.generator,
  };
  console.table({
    'calm before': figures.calmMs,
    'admitted in the flood': figures.admittedMs,
    'refused in the flood': figures.refusalMs,
    [`calm, ${recoverySeconds} s after the flood`]: figures.recoveredMs,
  });
  const { lag } = result.generator;
  console.log(
    `${floodPerSecond.toFixed(0)}/s at ${peakPerSecond.toFixed(1)}/s peak; the generator sent late by p50 ${lag?.p50Ms ?? '?'} ms, p99 ${lag?.p99Ms ?? '?'} ms`,
  );
  require('throughput in the flood against the peak', figures.floodServedPerSecond /
    peakPerSecond, 0.9, '×', false);
  require('p99 wait of the admitted against the queue budget', figures.admittedMs.p99 /
    queue.timeoutMs, 2, '×');
  require('median time to a refusal', figures.refusalMs.p50, 5, ' ms');
  require('answers that are neither served nor refused', undeliberate.length, 0, '');
  require('refused although the flood is over for 5 s', figures.refusedAfterRecovery, 0, '');
  require('median latency 5 s after the flood against before', figures.recoveredMs.p50 /
    figures.calmMs.p50, 1.2, '×');
  await writeResult('overload', figures);
} finally {
  node.process.kill('SIGTERM');
  if (node.process.exitCode === null) await new Promise((resolve) => node.process.once('exit', resolve));
  await rm(directory, { recursive: true });
}
