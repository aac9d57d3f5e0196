import { type ClosableLauncher, createInFlightCounter } from '../driver/http-launcher.ts';
import type { Outcome, StartLabel } from '../record/labels.ts';
import type { Recorder } from '../record/recorder.ts';
import { createRandom } from '../schedule/random.ts';
import type { Session, SessionScenario } from './define.ts';
import { RequestFailed, type SessionConnections } from './session-http.ts';

/** Most clean-ups of one session. */
const maxDeferred = 1000;

/** Launches one scripted session per arrival. */
export function createSessionLauncher(
  deps: {
    readonly connections: SessionConnections;
    readonly recorder: Recorder;
    readonly now: () => number;
    readonly headersFor: (arrival: { readonly sequence: number }) => readonly string[];
    /** Aborts sessions that still run when the generator stops. */
    readonly signal: AbortSignal;
  },
  options: {
    readonly scenario: SessionScenario;
    readonly scenarioOptions: unknown;
    readonly templates: readonly string[];
    readonly seed: number;
  },
): ClosableLauncher {
  const counter = createInFlightCounter();
  const { scenario } = options;

  const runSession = async (arrival: {
    sequence: number;
    target: number;
    intendedMs: number;
    sentMs: number;
  }) => {
    const deferred: (() => Promise<void>)[] = [];
    let ended: Ending = { outcome: 'ok', errorCode: '', status: 0 };
    let endedMs = Number.NaN;
    const session: Session<unknown> = {
      options: options.scenarioOptions,
      template: options.templates[arrival.target] ?? options.templates[0]!,
      sequence: arrival.sequence,
      http: deps.connections.as(deps.headersFor(arrival), deps.signal),
      random: createRandom(options.seed, `session-${arrival.sequence}`),
      signal: deps.signal,
      step: (name, work, start) => timeStep(name, work, start ?? 'unknown', arrival.intendedMs),
      defer(cleanup) {
        if (deferred.length >= maxDeferred) throw new RangeError(`more than ${maxDeferred} clean-ups`);
        deferred.push(cleanup);
      },
      expect(condition, detail) {
        if (!condition) throw new RequestFailed('failed', 'harness/unexpected', 0, detail);
      },
    };
    try {
      await scenario.run(session);
    } catch (error) {
      ended = endingOf(error);
    }
    endedMs = deps.now();
    for (const cleanup of deferred.reverse()) {
      await cleanup().catch((error) => {
        if (ended.outcome === 'ok') ended = { ...endingOf(error), errorCode: 'harness/cleanup-failed' };
      });
    }
    deps.recorder.session({ ...arrival, ...ended, endedMs });
  };

  const timeStep = async <T>(name: string, work: () => Promise<T>, start: StartLabel, intendedMs: number) => {
    if (!scenario.steps.includes(name)) {
      throw new RequestFailed('failed', 'harness/undeclared-step', 0, `step \`${name}\` is not declared`);
    }
    const startedMs = deps.now();
    const record = (outcome: Outcome) =>
      deps.recorder.step(intendedMs, { name, start, outcome, ms: deps.now() - startedMs });
    try {
      const result = await work();
      record('ok');
      return result;
    } catch (error) {
      record(endingOf(error).outcome);
      throw error;
    }
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

interface Ending {
  readonly outcome: Outcome;
  readonly errorCode: string;
  readonly status: number;
}

function endingOf(error: unknown): Ending {
  if (error instanceof RequestFailed) {
    return { outcome: error.outcome, errorCode: error.code, status: error.status };
  }
  const name = error instanceof Error ? error.name : 'error';
  return { outcome: 'failed', errorCode: `scenario/${name}`, status: 0 };
}
