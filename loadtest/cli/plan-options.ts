import { type Command, Option } from 'commander';
import { GatewayError } from '../../sdk/index.ts';
import { pacings } from '../driver/pacer.ts';
import { type RunPlan, runPlanSchema } from '../run/plan.ts';
import type { Scenario } from '../scenario/define.ts';
import { traceFormats } from '../trace/options.ts';
import { collected, duration, jsonOrFile, keyValues, numberFrom, wholeFrom } from './parse.ts';

/** What the options of {@link addPlanOptions} parse to. */
export interface PlanFlags {
  readonly template?: readonly string[];
  readonly tenantKey?: readonly string[];
  readonly rate?: number;
  readonly duration?: number;
  readonly poisson?: boolean;
  readonly profile?: unknown;
  readonly closed?: number;
  readonly trace?: string;
  readonly traceFormat?: string;
  readonly traceSpeed?: number;
  readonly traceSample?: number;
  readonly traceSkip?: number;
  readonly traceTake?: number;
  readonly targeting?: unknown;
  readonly zipf?: number;
  readonly seed?: number;
  readonly warmup?: number;
  readonly timeout?: number;
  readonly maxInFlight?: number;
  readonly connections?: number;
  readonly workers?: number;
  readonly repeats?: number;
  readonly rest?: number;
  readonly pacing?: RunPlan['pacing'];
  readonly probe?: boolean;
  readonly idempotency?: boolean;
  readonly expectDigest?: readonly string[];
  readonly option?: readonly string[];
  readonly threshold?: readonly string[];
  readonly maxLag?: number;
  readonly maxDropped?: number;
  readonly sampleEvery?: number;
  readonly leakCheck?: boolean;
}

/** Adds what describes a run. */
export function addPlanOptions(command: Command): Command {
  return command
    .option('-t, --template <name>', 'template to invoke; repeat for several', collected)
    .option(
      '-r, --rate <per-second>',
      'arrivals a second of a constant schedule',
      numberFrom(0.001, 1_000_000),
    )
    .option('-d, --duration <time>', 'length of the schedule: 500ms, 30s, 5m, 2h', duration)
    .option('--poisson', 'draw gaps between arrivals from an exponential distribution')
    .option('--profile <json|@file>', 'any schedule, as JSON: {"kind":"ramp",…}', jsonOrFile)
    .option(
      '--closed <concurrency>',
      'closed loop instead of a schedule: this many at a time',
      wholeFrom(1, 10_000),
    )
    .option('--trace <file>', 'replay a trace (.csv or .csv.gz)')
    .addOption(new Option('--trace-format <format>', 'columns of the trace').choices([...traceFormats]))
    .option('--trace-speed <factor>', 'trace seconds per second', numberFrom(0.000_1, 100_000))
    .option('--trace-sample <share>', 'keep this share of the invocations', numberFrom(0.000_001, 1))
    .option('--trace-skip <time>', 'leave out the first part of the trace', duration)
    .option('--trace-take <time>', 'replay this much trace time (default 1h)', duration)
    .option('--zipf <exponent>', 'spread arrivals over templates after Zipf', numberFrom(0, 10))
    .option('--targeting <json|@file>', 'any spread over templates, as JSON', jsonOrFile)
    .option('--seed <n>', 'decides every arrival (default 1)', wholeFrom(0, 2 ** 31 - 1))
    .option('--warmup <time>', 'leave the start out of every figure', duration)
    .option('--timeout <time>', 'limit of a request (default 30s)', duration)
    .option('--max-in-flight <n>', 'open requests of one generator (default 2000)', wholeFrom(1, 20_000))
    .option(
      '--connections <n>',
      'connections of one generator (default: as many as in flight)',
      wholeFrom(1, 20_000),
    )
    .option('--workers <n>', 'generator threads (default 1)', wholeFrom(1, 64))
    .option('--repeats <n>', 'run it this often and report the spread', wholeFrom(1, 100))
    .option('--rest <time>', 'pause between repeats (default 1s)', duration)
    .addOption(new Option('--pacing <how>', 'how the generator waits for an arrival').choices([...pacings]))
    .option('--probe', 'the templates answer probes: check random bytes, clock, invocations and tenants')
    .option('--idempotency', 'send each probe under a key and some of them twice: the second must not run')
    .option('--tenant-key <key>', 'key of another tenant; arrivals take turns', collected)
    .option(
      '--expect-digest <template=digest>',
      'the only right version; repeat for several right ones',
      collected,
    )
    .option('-o, --option <key=value>', 'option of the scenario', collected)
    .option('--threshold <expression>', 'gate, such as "p99(latency{start=ready}) < 50ms"', collected)
    .option('--max-lag <time>', 'schedule lag p99 from which the run fails (default 5ms)', duration)
    .option(
      '--max-dropped <share>',
      'dropped arrivals from which the run fails (default 0.01)',
      numberFrom(0, 1),
    )
    .option('--sample-every <time>', 'how often the server’s resources are sampled; 0ms never', duration)
    .option('--leak-check', 'fail when the server holds more afterwards than before')
    .option('--no-leak-check', 'leave that out where the scenario asks for it');
}

/** The plan that flags and a scenario's defaults make. Throws `invalid_request` naming the wrong part. */
export function planFrom(
  flags: PlanFlags,
  scenario: Scenario,
  scenarioName: string,
  connection: { readonly url: string; readonly apiKey?: string },
): RunPlan {
  const scenarioOptions = keyValues(flags.option ?? [], '--option');
  const plan = {
    scenario: scenarioName,
    scenarioOptions,
    url: connection.url,
    apiKeys: [...(connection.apiKey === undefined ? [] : [connection.apiKey]), ...(flags.tenantKey ?? [])],
    templates: flags.template ?? [],
    loop: loopFrom(flags, scenario, scenarioOptions),
    ...given(
      'targeting',
      flags.zipf === undefined ? flags.targeting : { kind: 'zipf', exponent: flags.zipf },
    ),
    ...given('seed', flags.seed),
    ...given('warmupMs', flags.warmup),
    ...given('timeoutMs', flags.timeout ?? scenario.planDefaults?.timeoutMs),
    ...given('maxInFlight', flags.maxInFlight),
    ...given('maxConnections', flags.connections),
    ...given('workers', flags.workers),
    ...given('repeats', flags.repeats),
    ...given('restMs', flags.rest),
    ...given('pacing', flags.pacing),
    ...given('probe', flags.probe),
    ...given('idempotency', flags.idempotency),
    expectedDigests: digestsFrom(flags.expectDigest ?? []),
    limits: {
      ...given('lagP99Ms', flags.maxLag ?? scenario.planDefaults?.lagP99Ms),
      ...given('droppedRatio', flags.maxDropped),
    },
    thresholds: flags.threshold ?? [],
    ...given('sampleEveryMs', flags.sampleEvery),
    ...given('leakCheck', flags.leakCheck ?? scenario.planDefaults?.leakCheck),
  };
  const parsed = runPlanSchema.safeParse(plan);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const field = issue?.path.join('.') ?? '';
  const hint = field === 'templates' ? ' (name one with --template)' : '';
  throw new GatewayError('invalid_request', `${field}: ${issue?.message ?? 'invalid'}${hint}`, { field });
}

function loopFrom(flags: PlanFlags, scenario: Scenario, scenarioOptions: Record<string, unknown>): unknown {
  const ways = [flags.rate, flags.profile, flags.closed, flags.trace].filter((way) => way !== undefined);
  if (ways.length > 1) {
    throw new GatewayError('invalid_request', 'give one of --rate, --profile, --closed and --trace');
  }
  if (flags.closed !== undefined) {
    return { kind: 'closed', concurrency: flags.closed, durationMs: flags.duration ?? 30_000 };
  }
  if (flags.trace !== undefined) {
    const trace = {
      file: flags.trace,
      format: flags.traceFormat,
      ...given('speed', flags.traceSpeed),
      ...given('sample', flags.traceSample),
      ...given('skipMs', flags.traceSkip),
      ...given('takeMs', flags.traceTake),
    };
    return { kind: 'trace', trace };
  }
  if (flags.profile !== undefined) return { kind: 'open', profile: flags.profile };
  if (flags.rate !== undefined) {
    return {
      kind: 'open',
      profile: {
        kind: flags.poisson ? 'poisson' : 'constant',
        ratePerSecond: flags.rate,
        durationMs: flags.duration ?? 30_000,
      },
    };
  }
  const options = scenario.options.safeParse(scenarioOptions);
  // Wrong options are reported by the run, with the scenario's name.
  const profile = scenario.profile(options.success ? options.data : scenario.options.parse({}));
  return { kind: 'open', profile: withDuration(profile, flags.duration) };
}

/** `--duration` also stretches a scenario's own schedule, where that has one length. */
function withDuration<T extends object>(profile: T, durationMs: number | undefined): T {
  return durationMs === undefined || !('durationMs' in profile) ? profile : { ...profile, durationMs };
}

function digestsFrom(pairs: readonly string[]): Record<string, string[]> {
  const digests: Record<string, string[]> = {};
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    if (equals < 1) {
      throw new GatewayError('invalid_request', `--expect-digest ${pair}: write it as template=sha256:…`);
    }
    const template = pair.slice(0, equals);
    digests[template] = [...(digests[template] ?? []), pair.slice(equals + 1)];
  }
  return digests;
}

const given = <K extends string>(key: K, value: unknown): { [P in K]?: unknown } =>
  (value === undefined ? {} : { [key]: value }) as { [P in K]?: unknown };
