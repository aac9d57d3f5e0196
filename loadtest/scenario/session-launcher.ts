import { isGatewayError } from '../../sdk/index.ts';
import { canaryOf } from '../check/probe.ts';
import type { SessionChecks } from '../check/session-checks.ts';
import { type ClosableLauncher, createInFlightCounter } from '../driver/http-launcher.ts';
import type { Outcome, StartLabel } from '../record/labels.ts';
import type { Recorder } from '../record/recorder.ts';
import { createRandom } from '../schedule/random.ts';
import type { Session, SessionScenario } from './define.ts';
import { RequestFailed, type SessionConnections } from './session-http.ts';

/** Most clean-ups of one session. */
const maxDeferred = 1000;

/** What every session of a generator shares. */
export interface SessionDeps {
  readonly connections: SessionConnections;
  readonly recorder: Recorder;
  readonly checks: SessionChecks;
  readonly now: () => number;
  readonly headersFor: (arrival: { readonly sequence: number }) => readonly string[];
  /** Aborts sessions that still run when the generator stops. */
  readonly signal: AbortSignal;
}

export interface SessionOptions {
  readonly steps: readonly string[];
  readonly scenarioOptions: unknown;
  readonly templates: readonly string[];
  readonly seed: number;
  readonly connection: { readonly url: string; readonly apiKey?: string };
  /** Names the run in canaries. */
  readonly runId: string;
  /** Right digests by template. */
  readonly expectedDigests: Readonly<Record<string, readonly string[]>>;
}

/** The arrival that a session belongs to. */
interface SessionArrival {
  readonly sequence: number;
  readonly target: number;
  readonly intendedMs: number;
}

/** Launches one scripted session per arrival. */
export function createSessionLauncher(
  deps: SessionDeps,
  options: SessionOptions & { readonly scenario: SessionScenario },
): ClosableLauncher {
  const counter = createInFlightCounter();
  const runSession = async (arrival: SessionArrival & { readonly sentMs: number }) => {
    const { session, cleanUp } = openSession(deps, options, arrival);
    let ended: Ending = { outcome: 'ok', errorCode: '', status: 0, detail: '' };
    try {
      await options.scenario.run(session);
    } catch (error) {
      ended = endingOf(error);
    }
    const endedMs = deps.now();
    const failure = await cleanUp();
    if (failure !== null && ended.outcome === 'ok') {
      ended = { ...endingOf(failure), errorCode: 'harness/cleanup-failed' };
    }
    deps.recorder.session({ ...arrival, ...ended, endedMs });
  };
  return {
    get inFlight() {
      return counter.inFlight;
    },
    idle: counter.idle,
    onSettled: counter.onLeave,
    launch(arrival) {
      counter.enter();
      void runSession(arrival).finally(() => counter.leave());
    },
  };
}

/** A session and what ends it; `cleanUp` runs everything deferred and answers the first failure. */
export function openSession(
  deps: SessionDeps,
  options: SessionOptions,
  arrival: SessionArrival,
): { readonly session: Session<unknown>; readonly cleanUp: () => Promise<unknown> } {
  const deferred: (() => Promise<void>)[] = [];
  const at = (where: string, machine: string) => ({
    sequence: arrival.sequence,
    atMs: Math.round(arrival.intendedMs),
    request: `session #${arrival.sequence}, ${where}`,
    machine,
  });
  const template = options.templates[arrival.target] ?? options.templates[0]!;
  const canary = canaryOf(`session ${options.runId} ${arrival.sequence}`);
  const session: Session<unknown> = {
    options: options.scenarioOptions,
    template,
    sequence: arrival.sequence,
    canary,
    expectedDigests: options.expectedDigests[template] ?? [],
    connection: options.connection,
    // Clean-up runs after an abort too, so its requests are not tied to it.
    http: deps.connections.as(deps.headersFor(arrival)),
    random: createRandom(options.seed, `session-${arrival.sequence}`),
    signal: deps.signal,
    check: {
      firstUse: (where, machine, failure) => deps.checks.firstUse(at(where, machine), failure),
      randomBytes: (where, machine, hex) => deps.checks.randomBytes(at(where, machine), hex),
      guestClock: (where, machine, ...clock) => deps.checks.guestClock(at(where, machine), ...clock),
      digest: (where, machine, got, expected) => deps.checks.digest(at(where, machine), got, expected),
      runs: (where, machine, got, expected) => deps.checks.runs(at(where, machine), got, expected),
      canary: (where, machine, text) => deps.checks.canary(at(where, machine), text, canary),
    },
    step: (name, work, start) => timeStep(deps, options, arrival, { name, work, start: start ?? 'unknown' }),
    defer(cleanup) {
      if (deferred.length >= maxDeferred) throw new RangeError(`more than ${maxDeferred} clean-ups`);
      deferred.push(cleanup);
    },
    expect(condition, detail) {
      if (!condition) throw new RequestFailed('failed', 'harness/unexpected', 0, detail);
    },
  };
  return {
    session,
    async cleanUp() {
      let failure: unknown = null;
      for (const cleanup of deferred.reverse()) {
        await cleanup().catch((error: unknown) => {
          failure ??= error;
        });
      }
      return failure;
    },
  };
}

async function timeStep<T>(
  deps: SessionDeps,
  options: SessionOptions,
  arrival: SessionArrival,
  step: {
    readonly name: string;
    readonly work: () => Promise<T>;
    readonly start: StartLabel | ((answer: T) => StartLabel);
  },
): Promise<T> {
  const { name, start } = step;
  if (!options.steps.includes(name)) {
    throw new RequestFailed('failed', 'harness/undeclared-step', 0, `step \`${name}\` is not declared`);
  }
  deps.signal.throwIfAborted();
  const startedMs = deps.now();
  const record = (outcome: Outcome, label: StartLabel) =>
    deps.recorder.step(arrival.intendedMs, { name, start: label, outcome, ms: deps.now() - startedMs });
  try {
    const answer = await step.work();
    record('ok', typeof start === 'function' ? start(answer) : start);
    return answer;
  } catch (error) {
    record(endingOf(error).outcome, typeof start === 'function' ? 'unknown' : start);
    throw error;
  }
}

interface Ending {
  readonly outcome: Outcome;
  readonly errorCode: string;
  readonly status: number;
  readonly detail: string;
}

function endingOf(error: unknown): Ending {
  const detail = error instanceof Error ? error.message : String(error);
  if (error instanceof RequestFailed) {
    return { outcome: error.outcome, errorCode: error.code, status: error.status, detail };
  }
  if (isGatewayError(error)) {
    return { outcome: 'failed', errorCode: `sdk/${error.code}`, status: error.status, detail };
  }
  const name = error instanceof Error ? error.name : 'error';
  return { outcome: 'failed', errorCode: `scenario/${name}`, status: 0, detail };
}
