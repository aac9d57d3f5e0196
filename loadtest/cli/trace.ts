import { Command, Option } from 'commander';
import { type TraceOptions, traceFormats, traceOptionsSchema } from '../trace/options.ts';
import { readTrace } from '../trace/source.ts';
import { writeSyntheticTrace } from '../trace/synthetic.ts';
import { guarded, type LoadtestDeps, print } from './context.ts';
import { duration, numberFrom, wholeFrom } from './parse.ts';

const formatOption = () =>
  new Option('--format <format>', 'columns of the file').choices([...traceFormats]).makeOptionMandatory();

/** `snapgate loadtest trace make|show`. */
export function traceCommand(deps: LoadtestDeps): Command {
  const trace = new Command('trace').description('make synthetic traces and look at traces');
  trace
    .command('make')
    .description('write a synthetic trace with the columns of a public one')
    .argument('<file>')
    .addOption(formatOption())
    .option('--functions <n>', 'functions', wholeFrom(1, 100_000), 50)
    .option('--minutes <n>', 'length', wholeFrom(1, 1440), 60)
    .option('--per-minute <n>', 'invocations of all functions together', numberFrom(0.1, 1_000_000), 600)
    .option('--seed <n>', 'decides the trace', wholeFrom(0, 2 ** 31 - 1), 1)
    .action(
      guarded(deps, async (file: string, flags: MakeFlags) => {
        await writeSyntheticTrace(
          {
            format: flags.format,
            functions: flags.functions,
            minutes: flags.minutes,
            invocationsPerMinute: flags.perMinute,
            seed: flags.seed,
          },
          file,
        );
      }),
    );
  trace
    .command('show')
    .description('count invocations and functions of a trace, and its busiest second')
    .argument('<file>')
    .addOption(formatOption())
    .option('--skip <time>', 'leave out the first part', duration)
    .option('--take <time>', 'look at this much trace time (default 1h)', duration)
    .option('--json', 'print JSON')
    .action(
      guarded(deps, async (file: string, flags: ShowFlags) => {
        const facts = await describeTrace(
          traceOptionsSchema.parse({
            file,
            format: flags.format,
            ...(flags.skip === undefined ? {} : { skipMs: flags.skip }),
            ...(flags.take === undefined ? {} : { takeMs: flags.take }),
          }),
        );
        await print(
          deps.stdout,
          flags.json
            ? `${JSON.stringify(facts, null, 2)}\n`
            : `${facts.invocations} invocations of ${facts.functions} functions in ${Math.round(facts.lastMs / 1000)} s, ${facts.meanPerSecond.toFixed(2)}/s on average, ${facts.peakPerSecond} in the busiest second, hottest function ${(facts.hottestShare * 100).toFixed(1)} %\n`,
        );
      }),
    );
  return trace;
}

interface MakeFlags {
  readonly format: TraceOptions['format'];
  readonly functions: number;
  readonly minutes: number;
  readonly perMinute: number;
  readonly seed: number;
}

interface ShowFlags {
  readonly format: TraceOptions['format'];
  readonly skip?: number;
  readonly take?: number;
  readonly json?: boolean;
}

async function describeTrace(options: TraceOptions) {
  const calls = new Map<number, number>();
  let invocations = 0;
  let lastMs = 0;
  let second = 0;
  let inSecond = 0;
  let peakPerSecond = 0;
  for await (const { atMs, functionIndex } of readTrace(options, 1)) {
    invocations += 1;
    lastMs = atMs;
    calls.set(functionIndex, (calls.get(functionIndex) ?? 0) + 1);
    if (Math.floor(atMs / 1000) !== second) {
      second = Math.floor(atMs / 1000);
      inSecond = 0;
    }
    inSecond += 1;
    peakPerSecond = Math.max(peakPerSecond, inSecond);
  }
  const hottest = [...calls.values()].reduce((most, count) => Math.max(most, count), 0);
  return {
    invocations,
    functions: calls.size,
    lastMs,
    meanPerSecond: lastMs === 0 ? 0 : invocations / (lastMs / 1000),
    peakPerSecond,
    hottestShare: invocations === 0 ? 0 : hottest / invocations,
  };
}
