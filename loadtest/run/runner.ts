import { setTimeout as sleep } from 'node:timers/promises';
import { createAdminClient, GatewayError } from '../../sdk/index.ts';
import { type CheckName, type CheckReport, checkNames, mergeReports } from '../check/check.ts';
import { FingerprintSet } from '../check/fingerprints.ts';
import { primeGenerator } from '../driver/prime.ts';
import type { LabelVocabulary } from '../gate/catalogue.ts';
import { parseThreshold, type Threshold } from '../gate/expression.ts';
import { servedLanes } from '../record/lanes.ts';
import { openRawSink } from '../record/raw.ts';
import { Recorder } from '../record/recorder.ts';
import type { Result } from '../record/result.ts';
import { checkLeaks, takeHoldings } from '../resource/leaks.ts';
import { createLocalHost } from '../resource/local-host.ts';
import { createNodeApi } from '../resource/node-view.ts';
import { isLoopback, startSampler } from '../resource/sampler.ts';
import type { Scenario } from '../scenario/define.ts';
import { describeProfile, profileDurationMs } from '../schedule/profile.ts';
import { assembleResult } from './assemble.ts';
import { describeEnvironment } from './environment.ts';
import { type GeneratorResult, generate, type Progress } from './generator.ts';
import type { RunPlan } from './plan.ts';
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
export async function run(plan: RunPlan, scenario: Scenario, hooks: RunHooks = {}): Promise<Result> {
  const signal = hooks.signal ?? new AbortController().signal;
  const thresholds = prepareThresholds(plan, scenario);
  checkPlan(plan, hooks);
  const runId = crypto.randomUUID().slice(0, 8);
  const startedAt = Date.now();
  const api = createNodeApi({ url: plan.url, apiKey: plan.apiKeys[0] });
  await checkReachable(plan);

  hooks.onPhase?.('warming up the generator');
  const environment = await describeEnvironment(plan.url, await askNodes(plan));
  const overhead = await primeGenerator(signal);
  const before = plan.leakCheck ? await takeHoldings(api) : null;

  const recorder = newRecorder(plan);
  const repeats: Result['repeats'] = [];
  const generated: GeneratorResult[] = [];
  let rawLinesDropped = 0;
  const runStartMs = performance.now();
  const sampler =
    plan.sampleEveryMs === 0
      ? null
      : startSampler(
          {
            api,
            local: isLoopback(plan.url) ? createLocalHost({ clock: () => performance.now() }) : null,
            now: () => performance.now() - runStartMs,
          },
          { everyMs: plan.sampleEveryMs },
        );
  {
    await using _sampling = sampler;
    await using raw = hooks.rawFile === undefined ? null : await openRawSink(hooks.rawFile, plan.templates);
    for (let repeat = 0; repeat < plan.repeats && !signal.aborted; repeat++) {
      if (repeat > 0) await sleep(plan.restMs, undefined, { signal }).catch(() => undefined);
      hooks.onPhase?.(plan.repeats > 1 ? `repeat ${repeat + 1} of ${plan.repeats}` : 'running');
      const repeatStartedAt = Date.now();
      const onProgress = (progress: Progress) => hooks.onProgress?.(progress, repeat);
      const ofRepeat =
        plan.workers === 1
          ? [
              await generate(
                { scenario, raw, onProgress, signal },
                { plan, shard: { index: 0, count: 1 }, runId: `${runId}${repeat}` },
              ),
            ]
          : await generateInWorkers({ onProgress, signal }, { plan, runId: `${runId}${repeat}` });
      const recorded = newRecorder(plan);
      for (const one of ofRepeat) recorded.merge(one.recording);
      repeats.push(summarizeRepeat(recorded, repeatStartedAt));
      recorder.merge(recorded.snapshot());
      generated.push(...ofRepeat);
    }
    rawLinesDropped = raw?.dropped ?? 0;
  }
  hooks.onPhase?.('checking what is left');
  const leaks = plan.leakCheck
    ? await checkLeaks({ api, sleep: (ms) => sleep(ms) }, before, { settleMs: leakSettleMs })
    : null;
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
      cpuMs: generated.reduce((sum, one) => sum + one.cpuMs, 0),
      eventLoopUtilization: Math.max(0, ...generated.map((one) => one.eventLoopUtilization)),
      overhead,
      rawLinesDropped,
    },
    thresholds,
  );
}

const newRecorder = (plan: RunPlan) => new Recorder({ templates: plan.templates, warmupMs: plan.warmupMs });

/** The plan's thresholds and the scenario's own, parsed before anything is sent. */
export function prepareThresholds(plan: RunPlan, scenario: Scenario): Threshold[] {
  const parsed = scenario.options.safeParse(plan.scenarioOptions);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new GatewayError(
      'invalid_request',
      `options of scenario ${scenario.name}: ${issue?.path.join('.')} ${issue?.message}`,
    );
  }
  const vocabulary: LabelVocabulary = {
    template: plan.templates,
    name: scenario.steps ?? [],
    check: Object.keys(checkNames),
  };
  const texts = [...(scenario.thresholds?.(parsed.data) ?? []), ...plan.thresholds];
  const thresholds = texts.map((text) => parseThreshold(text, vocabulary));
  const onSchedule = thresholds.find(
    ({ metric }) => metric.name === 'lag' || metric.name === 'late' || metric.name === 'dropped',
  );
  if (plan.loop.kind === 'closed' && onSchedule !== undefined) {
    throw new GatewayError(
      'invalid_request',
      `threshold \`${onSchedule.text}\`: a closed loop has no schedule, so it has no ${onSchedule.metric.name}`,
    );
  }
  return thresholds;
}

function checkPlan(plan: RunPlan, hooks: RunHooks): void {
  const fail = (message: string) => {
    throw new GatewayError('invalid_request', message);
  };
  if (hooks.rawFile !== undefined && plan.workers > 1) fail('raw samples need --workers 1');
  if (plan.loop.kind === 'open' && plan.warmupMs >= profileDurationMs(plan.loop.profile)) {
    fail('the warm-up is as long as the whole schedule');
  }
  if (plan.loop.kind === 'closed' && plan.warmupMs >= plan.loop.durationMs) {
    fail('the warm-up is as long as the run');
  }
  if (plan.targeting.kind === 'weighted' && plan.targeting.weights.length !== plan.templates.length) {
    fail(`${plan.targeting.weights.length} weights were given for ${plan.templates.length} templates`);
  }
}

/** One connection before a whole schedule is fired at nothing. */
async function checkReachable(plan: RunPlan): Promise<void> {
  try {
    const answer = await fetch(new URL('/healthz', plan.url), { signal: AbortSignal.timeout(5_000) });
    await answer.body?.cancel();
  } catch (cause) {
    throw new GatewayError('invalid_request', `nothing answers at ${plan.url}; is \`snapgate up\` running?`, {
      field: 'url',
      cause,
    });
  }
}

const askNodes = (plan: RunPlan) =>
  createAdminClient({
    url: plan.url,
    timeoutMs: 2_000,
    ...(plan.apiKeys[0] === undefined ? {} : { apiKey: plan.apiKeys[0] }),
  })
    .nodes()
    .catch(() => null);

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
export function describeSchedule(plan: RunPlan): string {
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
