import { Command } from 'commander';
import { formatMs } from '../gate/format.ts';
import { calibrate } from '../run/calibrate.ts';
import { guarded, type LoadtestDeps, loadtestExitCodes, print } from './context.ts';
import { duration, numberFrom } from './parse.ts';

/** `snapgate loadtest calibrate`: what the generator itself can do on this machine. */
export function calibrateCommand(deps: LoadtestDeps): Command {
  return new Command('calibrate')
    .description('measure the generator itself against a trivial local server')
    .option('-r, --rate <per-second>', 'rate that must be reached', numberFrom(1, 1_000_000), 10_000)
    .option('-d, --duration <time>', 'length of each of two runs', duration, 3_000)
    .option('--max-lag <time>', 'schedule lag p99 that is allowed at 70 % of the rate', duration, 5)
    .option('--json', 'print JSON')
    .action(
      guarded(deps, async (flags: CalibrateFlags) => {
        const found = await calibrate({
          ratePerSecond: flags.rate,
          durationMs: flags.duration,
          signal: deps.interrupted,
        });
        const isReached =
          found.answeredPerSecond >= 0.99 * flags.rate &&
          found.lagP99Ms !== null &&
          found.lagP99Ms < flags.maxLag;
        await print(
          deps.stdout,
          flags.json
            ? `${JSON.stringify(found, null, 2)}\n`
            : `${Math.round(found.answeredPerSecond)}/s of ${flags.rate}/s answered, ${found.cpuUsPerRequest} µs of CPU per request
at 70 % of the rate: sent late by p50 ${formatMs(found.lagP50Ms)}, p99 ${formatMs(found.lagP99Ms)} (allowed ${formatMs(flags.maxLag)})
${isReached ? 'REACHED' : `NOT REACHED: the kernel took the core from the generator ${found.preemptions} times; load average before: ${found.loadAverage}`}\n`,
        );
        deps.setExitCode(isReached ? loadtestExitCodes.passed : loadtestExitCodes.failed);
      }),
    );
}

interface CalibrateFlags {
  readonly rate: number;
  readonly duration: number;
  readonly maxLag: number;
  readonly json?: boolean;
}
