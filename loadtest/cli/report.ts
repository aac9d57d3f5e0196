import { Command, Option } from 'commander';
import { renderTerminal } from '../report/terminal.ts';
import { type ReportForm, readResult, renderResult, reportFiles, writeReport } from '../report/write.ts';
import { builtInScenarios } from '../scenario/registry.ts';
import { guarded, type LoadtestDeps, print } from './context.ts';

/** `snapgate loadtest report`: another form of a result that was written before. */
export function reportCommand(deps: LoadtestDeps): Command {
  return new Command('report')
    .description('render a result again, in another form')
    .argument('<result.json>')
    .addOption(
      new Option('--as <form>', 'form; without one, the summary for a terminal').choices(
        Object.keys(reportFiles),
      ),
    )
    .option('--to <file>', 'write to a file rather than standard output')
    .action(
      guarded(deps, async (file: string, flags: { readonly as?: ReportForm; readonly to?: string }) => {
        const result = await readResult(file);
        if (flags.as !== undefined && flags.to !== undefined) return writeReport(result, flags.as, flags.to);
        await print(
          deps.stdout,
          flags.as === undefined ? renderTerminal(result) : await renderResult(result, flags.as),
        );
      }),
    );
}

/** `snapgate loadtest scenarios`: what is built in and what each proves. */
export function scenariosCommand(deps: LoadtestDeps): Command {
  return new Command('scenarios')
    .description('list the built-in scenarios and what each proves')
    .option('--json', 'print JSON')
    .action(
      guarded(deps, async (flags: { readonly json?: boolean }) => {
        const all = builtInScenarios.map(({ name, kind, proves }) => ({ name, kind, proves }));
        const width = Math.max(...all.map(({ name }) => name.length));
        await print(
          deps.stdout,
          flags.json
            ? `${JSON.stringify(all, null, 2)}\n`
            : `${all.map((one) => `${one.name.padEnd(width)}  ${one.proves}`).join('\n')}\n`,
        );
      }),
    );
}
