import Table from 'cli-table3';
import { Command } from 'commander';
import { type Comparison, compareResults } from '../compare/compare.ts';
import { formatMs } from '../gate/format.ts';
import { readResult } from '../report/write.ts';
import { guarded, type LoadtestDeps, loadtestExitCodes, print } from './context.ts';
import { numberFrom } from './parse.ts';

interface CompareFlags {
  readonly bar: number;
  readonly confidence: number;
  readonly force?: boolean;
  readonly strict?: boolean;
  readonly json?: boolean;
}

/** `snapgate loadtest compare A.json B.json`. */
export function compareCommand(deps: LoadtestDeps): Command {
  return new Command('compare')
    .description('compare two results of the same schedule, with confidence')
    .argument('<a>', 'result before')
    .argument('<b>', 'result after')
    .option('--bar <share>', 'change that counts: 0.1 is 10 %', numberFrom(0.001, 10), 0.1)
    .option('--confidence <share>', 'of the intervals', numberFrom(0.5, 0.999), 0.95)
    .option('--strict', 'what the runs don’t decide fails too')
    .option('--force', 'compare results of different schedules')
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExit codes: 0 nothing is worse · 99 something is worse beyond the bar · 1 error')
    .action(
      guarded(deps, async (fileA: string, fileB: string, flags: CompareFlags) => {
        const comparison = compareResults(await readResult(fileA), await readResult(fileB), {
          confidence: flags.confidence,
          bar: flags.bar,
          isForced: flags.force === true,
        });
        await print(
          deps.stdout,
          flags.json ? `${JSON.stringify(comparison, null, 2)}\n` : describe(comparison),
        );
        const failing = flags.strict ? ['worse', 'unclear', 'too few'] : ['worse'];
        const hasFailed = comparison.rows.some((row) => failing.includes(row.verdict));
        deps.setExitCode(hasFailed ? loadtestExitCodes.failed : loadtestExitCodes.passed);
      }),
    );
}

function describe(comparison: Comparison): string {
  const table = new Table({
    head: ['', 'A', 'B', 'change', `${comparison.confidence * 100} % interval`, 'from', 'verdict'],
    style: { head: [], border: [] },
    chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' },
    colAligns: ['left', 'right', 'right', 'right', 'right', 'left', 'left'],
  });
  for (const { name, aMs, bMs, estimate, verdict } of comparison.rows) {
    table.push([
      name,
      formatMs(aMs),
      formatMs(bMs),
      estimate === null ? '–' : percent(estimate.ratio),
      estimate === null ? '–' : `${percent(estimate.low)} to ${percent(estimate.high)}`,
      estimate?.basis ?? '–',
      verdict,
    ]);
  }
  const notes = comparison.notes.map((note) => `note: ${note}`);
  return `${[table.toString(), `bar: ${comparison.bar * 100} %`, ...notes].join('\n')}\n`;
}

const percent = (ratio: number): string =>
  `${ratio >= 1 ? '+' : '−'}${Math.abs((ratio - 1) * 100).toFixed(1)} %`;
