import { Command } from 'commander';
import { calibrateCommand } from './calibrate.ts';
import { capacityCommand } from './capacity.ts';
import { compareCommand } from './compare.ts';
import type { LoadtestDeps } from './context.ts';
import { planCommand } from './plan.ts';
import { reportCommand, scenariosCommand } from './report.ts';
import { runCommand } from './run.ts';
import { traceCommand } from './trace.ts';

/**
 * `snapgate loadtest`, to be added to the program by its assembly. Its actions never reject: errors are printed to
 * `stderr`, and `setExitCode` gets 0, 1 or 99.
 */
export function loadtestCommand(deps: LoadtestDeps): Command {
  return new Command('loadtest')
    .description('measure a gateway under load and judge what it measured')
    .addCommand(runCommand(deps))
    .addCommand(scenariosCommand(deps))
    .addCommand(compareCommand(deps))
    .addCommand(capacityCommand(deps))
    .addCommand(planCommand(deps))
    .addCommand(traceCommand(deps))
    .addCommand(reportCommand(deps))
    .addCommand(calibrateCommand(deps));
}
