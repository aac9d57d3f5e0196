import { headerNames } from '../../sdk/index.ts';
import { type CheckReport, mergeReports } from '../check/check.ts';
import { probeId } from '../check/probe.ts';
import { createRepeatsCheck } from '../check/repeats.ts';
import { createSessionChecks } from '../check/session-checks.ts';
import { type CheckSuite, createCheckSuite } from '../check/suite.ts';
import { driveClosedLoop } from '../driver/closed-loop.ts';
import type { Exchange } from '../driver/exchange.ts';
import { type ClosableLauncher, createHttpLauncher } from '../driver/http-launcher.ts';
import { driveOpenLoop, type LaunchedArrival } from '../driver/open-loop.ts';
import { createPacer } from '../driver/pacer.ts';
import { createTransport } from '../driver/transport.ts';
import type { RawSink } from '../record/raw.ts';
import { Recorder, type RecordingSnapshot } from '../record/recorder.ts';
import type { Scenario, Session } from '../scenario/define.ts';
import { createSessionConnections } from '../scenario/session-http.ts';
import {
  createSessionLauncher,
  openSession,
  type SessionDeps,
  type SessionOptions,
} from '../scenario/session-launcher.ts';
import { createRandom } from '../schedule/random.ts';
import { type ArrivalSource, createProfileSource, type Shard } from '../schedule/source.ts';
import { createTargeting } from '../schedule/targets.ts';
import { createTraceSource } from '../trace/source.ts';
import type { RunPlan } from './plan.ts';
import { type Progress, progressOf } from './progress.ts';
import { createTenants, type Tenants } from './tenants.ts';

/** What one generator brings back; data only. */
export interface GeneratorResult {
  readonly recording: RecordingSnapshot;
  readonly checks: readonly CheckReport[];
  /** Random bytes seen, to be compared with those of the other generators. */
  readonly fingerprints: BigUint64Array;
  /** Why the scenario's background work failed; `null` when it didn't or has none. */
  readonly backgroundFailure: string | null;
  /** CPU time of the whole process while it generated, milliseconds. */
  readonly cpuMs: number;
  /** Share of the time in which the event loop was busy, 0–1. */
  readonly eventLoopUtilization: number;
  /** How often the kernel took the core from this process in favour of another. */
  readonly preemptions: number;
}

/** Milliseconds between the call and the first arrival: connections and timers are in place by then. */
const leadMs = 50;
const progressEveryMs = 500;

/** Runs one generator's part of one repeat, and returns when everything it sent has settled. */
export async function generate(
  deps: {
    readonly scenario: Scenario;
    readonly raw: RawSink | null;
    readonly onProgress: (progress: Progress) => void;
    readonly signal: AbortSignal;
  },
  options: {
    readonly plan: RunPlan;
    readonly shard: Shard;
    /** Names the run in probe ids. */
    readonly runId: string;
  },
): Promise<GeneratorResult> {
  const { plan, shard, runId } = options;
  const startAt = performance.now() + leadMs;
  const now = () => performance.now() - startAt;
  const recorder = new Recorder({ templates: plan.templates, warmupMs: plan.warmupMs });
  const tenants = createTenants(plan);
  const checks = createChecks(plan, shard, runId, tenants, now);
  const origin = new URL(plan.url).origin;
  const connection = {
    origin,
    maxConnections: plan.maxConnections ?? plan.maxInFlight,
    timeoutMs: plan.timeoutMs,
  };

  await using stack = new AsyncDisposableStack();
  const sessionChecks = createSessionChecks();
  const repeats = plan.idempotency ? createRepeatsCheck(describeExchange(plan, runId)) : null;
  const scenarioOptions = deps.scenario.options.parse(plan.scenarioOptions);
  const openSessions = (): SessionDeps => ({
    connections: stack.use(createSessionConnections(connection)),
    recorder,
    checks: sessionChecks,
    now,
    headersFor: tenants.headersFor,
    signal: deps.signal,
  });
  const sessionOptions: SessionOptions = {
    steps: deps.scenario.steps ?? [],
    scenarioOptions,
    templates: plan.templates,
    seed: plan.seed,
    runId,
    expectedDigests: plan.expectedDigests,
    connection: { url: plan.url, ...(plan.apiKeys[0] === undefined ? {} : { apiKey: plan.apiKeys[0] }) },
  };
  const launcher =
    deps.scenario.kind === 'sessions'
      ? createSessionLauncher(openSessions(), { ...sessionOptions, scenario: deps.scenario })
      : createHttpLauncher({
          transport: stack.use(createTransport({ ...connection, now })),
          now,
          keepsBody: checks.readsBodies,
          repeats,
          requestFor: deps.scenario.prepare({
            options: scenarioOptions,
            templates: plan.templates,
            headersFor: plan.idempotency
              ? (arrival) => [
                  ...tenants.headersFor(arrival),
                  headerNames.idempotencyKey,
                  probeId(runId, arrival.sequence),
                ]
              : tenants.headersFor,
            queryFor: plan.probe ? (arrival) => probeQuery(runId, arrival) : () => '',
          }),
          record(exchange) {
            recorder.settled(exchange);
            checks.examine(exchange);
            deps.raw?.write(exchange);
          },
        });

  const cpuBefore = process.cpuUsage();
  const preemptedBefore = process.resourceUsage().involuntaryContextSwitches;
  const loopBefore = performance.eventLoopUtilization();
  const timer = setInterval(() => deps.onProgress(progressOf(recorder, launcher, now())), progressEveryMs);
  stack.defer(() => clearInterval(timer));
  const background =
    deps.scenario.kind === 'requests' && deps.scenario.background !== undefined && shard.index === 0
      ? runBackground(deps.scenario.background, openSessions(), sessionOptions, plan.warmupMs)
      : Promise.resolve(null);
  await drive(plan, shard, launcher, recorder, now, deps.signal);
  await launcher.idle();
  const backgroundFailure = await background;
  const cpu = process.cpuUsage(cpuBefore);
  const ofRequests = checks.report();
  const ofSessions = sessionChecks.report();
  return {
    recording: recorder.snapshot(),
    checks: mergeReports([
      ...(deps.scenario.kind === 'requests' ? ofRequests.reports : []),
      ...(repeats === null ? [] : [repeats.report()]),
      ...ofSessions.reports,
    ]),
    fingerprints: deps.scenario.kind === 'requests' ? ofRequests.fingerprints : ofSessions.fingerprints,
    backgroundFailure,
    cpuMs: (cpu.user + cpu.system) / 1000,
    eventLoopUtilization: performance.eventLoopUtilization(loopBefore).utilization,
    preemptions: process.resourceUsage().involuntaryContextSwitches - preemptedBefore,
  };
}

const probeQuery = (runId: string, arrival: LaunchedArrival): string =>
  `?probe=${probeId(runId, arrival.sequence)}${arrival.workMs > 0 ? `&workMs=${Math.round(arrival.workMs)}` : ''}`;

/** The scenario's own work beside the schedule; never rejects. */
async function runBackground(
  work: (session: Session<unknown>) => Promise<void>,
  deps: SessionDeps,
  options: SessionOptions,
  warmupMs: number,
): Promise<string | null> {
  const { session, cleanUp } = openSession(deps, options, {
    sequence: -1,
    target: 0,
    // Its steps belong to the moment they happen; none is lost to the warm-up.
    get intendedMs() {
      return Math.max(warmupMs, deps.now());
    },
  });
  let failure: unknown = null;
  try {
    await work(session);
  } catch (error) {
    failure = error;
  }
  failure ??= await cleanUp();
  return failure === null ? null : failure instanceof Error ? failure.message : String(failure);
}

async function drive(
  plan: RunPlan,
  shard: Shard,
  launcher: ClosableLauncher,
  recorder: Recorder,
  now: () => number,
  signal: AbortSignal,
): Promise<void> {
  if (plan.loop.kind === 'closed') {
    const concurrency = Math.ceil((plan.loop.concurrency - shard.index) / shard.count);
    if (concurrency <= 0) return;
    const random = createRandom(plan.seed, `targets-${shard.index}`);
    const launched: ClosableLauncher = {
      ...launcher,
      get inFlight() {
        return launcher.inFlight;
      },
      launch(arrival) {
        recorder.launched(arrival.intendedMs, 0);
        launcher.launch(arrival);
      },
    };
    await waitUntilStart(now);
    await driveClosedLoop(
      { launcher: launched, pickTarget: createTargeting(plan.targeting, plan.templates.length, random), now },
      { concurrency, durationMs: plan.loop.durationMs, signal },
    );
    return;
  }
  await driveOpenLoop(
    { source: sourceOf(plan, shard), launcher, observer: recorder, pacer: createPacer(plan.pacing), now },
    { maxInFlight: plan.maxInFlight, dropAfterMs: plan.dropAfterMs, signal },
  );
}

/** The schedule of a plan's open loop. */
function sourceOf(plan: RunPlan, shard?: Shard): ArrivalSource {
  const common = {
    seed: plan.seed,
    targets: plan.templates.length,
    ...(shard === undefined ? {} : { shard }),
  };
  if (plan.loop.kind === 'trace') return createTraceSource({ ...common, trace: plan.loop.trace });
  if (plan.loop.kind === 'closed') throw new RangeError('a closed loop has no schedule');
  return createProfileSource({ ...common, profile: plan.loop.profile, targeting: plan.targeting });
}

const waitUntilStart = (now: () => number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, Math.max(0, -now())));

/** Names a request in the words of whoever reads the report. */
const describeExchange = (plan: RunPlan, runId: string) => (exchange: Exchange) =>
  `#${exchange.sequence} to ${plan.templates[exchange.target] ?? 'unknown'}${plan.probe ? `?probe=${probeId(runId, exchange.sequence)}` : ''}`;

function createChecks(
  plan: RunPlan,
  shard: Shard,
  runId: string,
  tenants: Tenants,
  now: () => number,
): CheckSuite {
  const expectedDigests = new Map<number, ReadonlySet<string>>();
  for (const [index, template] of plan.templates.entries()) {
    const digests = plan.expectedDigests[template];
    if (digests !== undefined) expectedDigests.set(index, new Set(digests));
  }
  return createCheckSuite(
    {
      describe: describeExchange(plan, runId),
      wallClock: Date.now,
      now,
    },
    {
      expectedDigests,
      seesAllRequests: shard.count === 1,
      probe: plan.probe
        ? {
            idFor: (exchange) => probeId(runId, exchange.sequence),
            canaryFor: tenants.canaryFor,
            tenants: tenants.count,
            isOurs: (id) => id.startsWith(probeId(runId, '')),
          }
        : null,
    },
  );
}
