import { setTimeout as sleep } from 'node:timers/promises';
import { type CheckName, type CheckReport, mergeReports } from '../check/check.ts';
import { FingerprintSet } from '../check/fingerprints.ts';
import { primeGenerator } from '../driver/prime.ts';
import { servedLanes } from '../record/lanes.ts';
import { openRawSink, type RawSink } from '../record/raw.ts';
import { Recorder } from '../record/recorder.ts';
import type { Result } from '../record/result.ts';
import { checkLeaks, takeHoldings } from '../resource/leaks.ts';
import { createLocalHost } from '../resource/local-host.ts';
import { createNodeApi, type NodeApi } from '../resource/node-view.ts';
import { isLoopback, type Sampler, startSampler } from '../resource/sampler.ts';
import type { Scenario } from '../scenario/define.ts';
import { describeProfile, profileDurationMs } from '../schedule/profile.ts';
import { assembleResult } from './assemble.ts';
import { describeEnvironment } from './environment.ts';
import { type GeneratorResult, generate } from './generator.ts';
import type { RunPlan } from './plan.ts';
import { askNodes, checkPlan, checkReachable, expectDigests, prepareThresholds } from './preflight.ts';
import type { Progress } from './progress.ts';
import { generateInWorkers } from './workers.ts';

/** How long a server may take to shed what a run made it grow. */
const leakSettleMs = 90_000;

/** Where a run writes while it is on, and who watches it. */
export interface RunHooks {
  readonly onProgress?: (progress: Progress, repeat: number) => void;
  readonly onPhase?: (phase: string) => void;
  /** File for one JSON line per request; needs one worker. */
  readonly rawFile?: string;
  /** Ends the run early; the result says so and fails. */
  readonly signal?: AbortSignal;
}

/**
 * Runs a plan and judges it. Rejects with `invalid_request` when the plan, a threshold or the scenario's options are
 * wrong or nothing answers at the address, before anything is measured. Failures of requests are samples, not errors.
 */
export async function run(given: RunPlan, scenario: Scenario, hooks: RunHooks = {}): Promise<Result> {
  const signal = hooks.signal ?? new AbortController().signal;
  const thresholds = prepareThresholds(given, scenario);
  checkPlan(given, hooks.rawFile !== undefined);
  const runId = crypto.randomUUID().slice(0, 8);
  const startedAt = Date.now();
  const api = createNodeApi({ url: given.url, apiKey: given.apiKeys[0] });
  await checkReachable(given);
  const plan = { ...given, expectedDigests: await expectDigests(given, scenario) };

  hooks.onPhase?.('warming up the generator');
  const environment = await describeEnvironment(plan.url, await askNodes(plan));
  const overhead = await primeGenerator(signal);
  const before = plan.leakCheck ? await takeHoldings(api) : null;
  const sampler = startSampling(plan, api);
  let measured: Measured;
  {
    await using _sampling = sampler;
    await using raw = hooks.rawFile === undefined ? null : await openRawSink(hooks.rawFile, plan.templates);
    measured = await runRepeats(plan, scenario, runId, raw, hooks, signal);
  }
  if (plan.leakCheck) hooks.onPhase?.('checking what is left');
  const leaks = plan.leakCheck
    ? await checkLeaks({ api, sleep: (ms) => sleep(ms) }, before, { settleMs: leakSettleMs })
    : null;
  const { recorder, repeats, generated } = measured;
  return assembleResult(
    {
      runId,
      startedAt,
      plan,
      scenario,
      schedule: describeSchedule(plan),
      measuredMs: measuredMs(plan, recorder, repeats.length),
      isAborted: signal.aborted,
      environment,
      recorder,
      repeats,
      resources: sampler?.samples() ?? [],
      checks: mergeChecks(generated, plan.workers),
      leaks,
      backgroundFailures: generated.map((one) => one.backgroundFailure).filter((failure) => failure !== null),
      cpuMs: measured.cpuMs,
      eventLoopUtilization: Math.max(0, ...generated.map((one) => one.eventLoopUtilization)),
      // Threads of one process share the count.
      preemptions: Math.max(0, ...generated.map((one) => one.preemptions)),
      overhead,
      rawLinesDropped: measured.rawLinesDropped,
    },
    thresholds,
  );
}

/** What all repeats gathered. */
interface Measured {
  readonly recorder: Recorder;
  readonly repeats: Result['repeats'];
  readonly generated: readonly GeneratorResult[];
  readonly cpuMs: number;
  readonly rawLinesDropped: number;
}

async function runRepeats(
  plan: RunPlan,
  scenario: Scenario,
  runId: string,
  raw: RawSink | null,
  hooks: RunHooks,
  signal: AbortSignal,
): Promise<Measured> {
  const recorder = newRecorder(plan);
  const repeats: Result['repeats'] = [];
  const generated: GeneratorResult[] = [];
  let cpuMs = 0;
  for (let repeat = 0; repeat < plan.repeats && !signal.aborted; repeat++) {
    if (repeat > 0) await sleep(plan.restMs, undefined, { signal }).catch(() => undefined);
    hooks.onPhase?.(plan.repeats > 1 ? `repeat ${repeat + 1} of ${plan.repeats}` : 'running');
    const startedAt = Date.now();
    const onProgress = (progress: Progress) => hooks.onProgress?.(progress, repeat);
    const part = { plan, runId: `${runId}${repeat}` };
    const ofRepeat =
      plan.workers === 1
        ? [await generate({ scenario, raw, onProgress, signal }, { ...part, shard: { index: 0, count: 1 } })]
        : await generateInWorkers({ onProgress, signal }, part);
    const recorded = newRecorder(plan);
    for (const one of ofRepeat) recorded.merge(one.recording);
    repeats.push(summarizeRepeat(recorded, startedAt));
    recorder.merge(recorded.snapshot());
    generated.push(...ofRepeat);
    // Threads of one process share the count.
    cpuMs += Math.max(0, ...ofRepeat.map((one) => one.cpuMs));
  }
  return { recorder, repeats, generated, cpuMs, rawLinesDropped: raw?.dropped ?? 0 };
}

/** Samples the server until it is disposed; `null` when the plan wants none. */
function startSampling(plan: RunPlan, api: NodeApi): Sampler | null {
  if (plan.sampleEveryMs === 0) return null;
  const startMs = performance.now();
  const local = isLoopback(plan.url) ? createLocalHost({ clock: () => performance.now() }) : null;
  return startSampler(
    { api, local, now: () => performance.now() - startMs },
    { everyMs: plan.sampleEveryMs },
  );
}

const newRecorder = (plan: RunPlan) => new Recorder({ templates: plan.templates, warmupMs: plan.warmupMs });

function summarizeRepeat(recorder: Recorder, startedAt: number): Result['repeats'][number] {
  const lanes: Result['repeats'][number]['lanes'] = {};
  for (const { lane, durations } of servedLanes([...recorder.series.values()])) {
    lanes[lane] = {
      p50Ms: durations.trustedMs(50),
      p95Ms: durations.trustedMs(95),
      p99Ms: durations.trustedMs(99),
    };
  }
  return { startedAt, requests: recorder.counters.sent, ok: recorder.outcomes.ok, lanes };
}

function mergeChecks(generated: readonly GeneratorResult[], workers: number): CheckReport[] {
  const merged = mergeReports(generated.flatMap((one) => one.checks));
  // Each generator told repeats among its own answers; what two of them saw is found here.
  const shared = FingerprintSet.shared(generated.map((one) => one.fingerprints));
  if (shared === 0) return merged;
  const name: CheckName = 'random-bytes';
  return merged.map((report) =>
    report.name !== name
      ? report
      : {
          ...report,
          violations: report.violations + shared,
          samples: [
            ...report.samples,
            {
              sequence: -1,
              atMs: -1,
              request: `${workers > 1 ? 'two generators' : 'two repeats'}`,
              machine: '',
              detail: `${shared} kernel random values were seen by both`,
            },
          ],
        },
  );
}

/** The schedule in words. */
function describeSchedule(plan: RunPlan): string {
  switch (plan.loop.kind) {
    case 'open':
      return describeProfile(plan.loop.profile);
    case 'trace':
      return `trace ${plan.loop.trace.format} at speed ${plan.loop.trace.speed}`;
    case 'closed':
      return `closed loop, ${plan.loop.concurrency} at a time for ${plan.loop.durationMs / 1000} s`;
  }
}

function measuredMs(plan: RunPlan, recorder: Recorder, repeats: number): number {
  if (plan.loop.kind === 'trace')
    return recorder.timeline.entries().length * recorder.timeline.intervalMs * repeats;
  const whole = plan.loop.kind === 'open' ? profileDurationMs(plan.loop.profile) : plan.loop.durationMs;
  return Math.max(0, whole - plan.warmupMs) * repeats;
}
