import { Command } from 'commander';
import type { Result } from '../record/result.ts';
import { createLiveView } from '../report/live.ts';
import { renderTerminal } from '../report/terminal.ts';
import { type ReportForm, renderResult, reportFiles, writeReport, writeReports } from '../report/write.ts';
import type { RunPlan } from '../run/plan.ts';
import { run } from '../run/runner.ts';
import { loadScenario } from '../scenario/registry.ts';
import { profileDurationMs } from '../schedule/profile.ts';
import { guarded, type LoadtestDeps, loadtestExitCodes, print } from './context.ts';
import { addPlanOptions, type PlanFlags, planFrom } from './plan-options.ts';

interface OutputFlags {
  readonly out?: string;
  readonly raw?: string;
  readonly jsonOut?: string;
  readonly html?: string;
  readonly markdown?: string;
  readonly csv?: string;
  readonly junit?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** `snapgate loadtest run`: one scenario against a gateway, judged. */
export function runCommand(deps: LoadtestDeps): Command {
  return addPlanOptions(
    new Command('run')
      .description('run a scenario against a gateway and judge it')
      .argument('[scenario]', 'a built-in (see `loadtest scenarios`) or a file', 'invoke'),
  )
    .option('--out <directory>', `write ${Object.values(reportFiles).join(', ')}`)
    .option('--json-out <file>', 'write the result as JSON')
    .option('--html <file>', 'write the report as one HTML file')
    .option('--markdown <file>', 'write the report as Markdown')
    .option('--csv <file>', 'write the timeline as CSV')
    .option('--junit <file>', 'write the gates as JUnit XML')
    .option('--raw <file>', 'write every request as a line of JSON')
    .option('--json', 'print the result as JSON')
    .option('--quiet', 'show nothing while it runs')
    .addHelpText(
      'after',
      '\nExit codes: 0 every gate held · 99 a threshold, check, leak or generator limit failed · 1 error',
    )
    .action(
      guarded(deps, async (name: string, flags: PlanFlags & OutputFlags) => {
        const scenario = await loadScenario(name);
        const plan = planFrom(flags, scenario, name, deps.connection());
        const view = createLiveView(deps.stderr, {
          title: scenario.name,
          durationMs: planDurationMs(plan),
          now: Date.now,
        });
        const result = await run(plan, scenario, {
          signal: deps.interrupted,
          ...(flags.raw === undefined ? {} : { rawFile: flags.raw }),
          ...(flags.quiet ? {} : { onPhase: view.phase, onProgress: view.progress }),
        });
        view.end();
        await writeAll(result, flags);
        await print(deps.stdout, flags.json ? await renderResult(result, 'json') : renderTerminal(result));
        deps.setExitCode(result.verdict.isPassed ? loadtestExitCodes.passed : loadtestExitCodes.failed);
      }),
    );
}

/** Writes the forms that flags ask for. */
async function writeAll(result: Result, flags: OutputFlags): Promise<void> {
  if (flags.out !== undefined) await writeReports(result, flags.out);
  const files: readonly (readonly [ReportForm, string | undefined])[] = [
    ['json', flags.jsonOut],
    ['html', flags.html],
    ['markdown', flags.markdown],
    ['csv', flags.csv],
    ['junit', flags.junit],
  ];
  for (const [form, file] of files) if (file !== undefined) await writeReport(result, form, file);
}

function planDurationMs(plan: RunPlan): number | null {
  switch (plan.loop.kind) {
    case 'open':
      return profileDurationMs(plan.loop.profile);
    case 'closed':
      return plan.loop.durationMs;
    case 'trace':
      return plan.loop.trace.takeMs / plan.loop.trace.speed;
  }
}
