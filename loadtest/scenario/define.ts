import type { z } from 'zod';
import type { LaunchedArrival } from '../driver/open-loop.ts';
import type { OutgoingRequest } from '../driver/transport.ts';
import type { StartLabel } from '../record/labels.ts';
import type { ProfileInput } from '../schedule/profile.ts';
import type { Random } from '../schedule/random.ts';
import type { SessionHttp } from './session-http.ts';

interface ScenarioBase<Options extends z.ZodType> {
  /** `[a-z0-9-]`, how the command line calls it. */
  readonly name: string;
  /** What a green run of it proves, in one sentence. */
  readonly proves: string;
  /** Its own options, a `strictObject`; descriptions become help. */
  readonly options: Options;
  /** The schedule when the caller names none. */
  profile(options: z.output<Options>): ProfileInput;
  /** Gates it comes with; the caller's are added. */
  thresholds?(options: z.output<Options>): readonly string[];
  /** What of a plan it needs to prove its point, unless the caller says otherwise. */
  readonly planDefaults?: {
    readonly leakCheck?: boolean;
    readonly timeoutMs?: number;
    /** How late the generator may send; what is timed takes much longer. */
    readonly lagP99Ms?: number;
  };
  /** The step names it may use. */
  readonly steps?: readonly string[];
}

/** What a request scenario is given when a generator prepares. */
export interface RequestContext<Options> {
  readonly options: Options;
  readonly templates: readonly string[];
  /** `authorization` and the like, flat pairs, of the arrival's tenant. */
  headersFor(arrival: LaunchedArrival): readonly string[];
  /** Query which the probe function answers; empty when nothing is probed. Starts with `?` or is empty. */
  queryFor(arrival: LaunchedArrival): string;
}

/** One HTTP request per arrival: the fast path. */
export interface RequestScenario<Options extends z.ZodType = z.ZodType> extends ScenarioBase<Options> {
  readonly kind: 'requests';
  /** Called once per generator; the function it answers makes the request of each arrival. */
  prepare(context: RequestContext<z.output<Options>>): (arrival: LaunchedArrival) => OutgoingRequest;
  /**
   * Runs once beside the schedule, in the first generator; a rejection fails the run. It should end with the schedule,
   * and must end when its signal aborts.
   */
  background?(session: Session<z.output<Options>>): Promise<void>;
}

/** The checks of a session; `where` names the step, `machine` the machine or sandbox. */
interface SessionCheck {
  firstUse(where: string, machine: string, failure: string | null): void;
  randomBytes(where: string, machine: string, hex: string): void;
  guestClock(where: string, machine: string, clockMs: number, askedAt: number, answeredAt: number): void;
  digest(where: string, machine: string, got: string, expected: string): void;
  /** What ran there, in order, against what was asked to run: nothing lost, nothing twice. */
  runs(where: string, machine: string, got: readonly string[], expected: readonly string[]): void;
  /** No canary but the session's own is in the text. */
  canary(where: string, machine: string, text: string): void;
}

/** What a session can do. One session is one arrival; it ends when `run` settles. */
export interface Session<Options> {
  readonly options: Options;
  readonly template: string;
  readonly sequence: number;
  /** Marks this session's bytes wherever it leaves some; told apart from every other session's of this and other runs. */
  readonly canary: string;
  /** Digests of which a machine of the template must have one; empty when the plan expects none. */
  readonly expectedDigests: readonly string[];
  readonly http: SessionHttp;
  /** Drawn from the seed and the sequence, so that a rerun makes the same choices. */
  readonly random: Random;
  readonly signal: AbortSignal;
  /** The gateway, for what goes through the SDK. */
  readonly connection: { readonly url: string; readonly apiKey?: string };
  /**
   * Times `work` under a declared step name. A rejection counts with its outcome and is thrown on. `start` says how the
   * machine came to be where the scenario knows it, such as `forked`, or reads it off what the work answered.
   */
  step<T>(name: string, work: () => Promise<T>, start?: StartLabel | ((answer: T) => StartLabel)): Promise<T>;
  /** Has something checked; a violation fails the run and is shown with this session and `where`. */
  readonly check: SessionCheck;
  /** Runs when the session ends, last added first; failures of clean-up count as errors. */
  defer(cleanup: () => Promise<void>): void;
  /** Fails the session: what came back is not what must come back. */
  expect(condition: boolean, detail: string): void;
}

/** A scripted sequence of requests per arrival. */
export interface SessionScenario<Options extends z.ZodType = z.ZodType> extends ScenarioBase<Options> {
  readonly kind: 'sessions';
  readonly steps: readonly string[];
  run(session: Session<z.output<Options>>): Promise<void>;
}

export type Scenario<Options extends z.ZodType = z.ZodType> =
  | RequestScenario<Options>
  | SessionScenario<Options>;

/** Types a scenario by its options. A scenario file exports the answer as `default`. */
export function defineScenario<Options extends z.ZodType>(
  scenario: RequestScenario<Options>,
): RequestScenario<Options>;
export function defineScenario<Options extends z.ZodType>(
  scenario: SessionScenario<Options>,
): SessionScenario<Options>;
export function defineScenario<Options extends z.ZodType>(scenario: Scenario<Options>): Scenario<Options> {
  return scenario;
}
