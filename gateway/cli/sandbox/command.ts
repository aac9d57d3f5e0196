import { Command } from 'commander';
import { copyCommand } from './copy.ts';
import { createCommand } from './create.ts';
import type { SandboxCommandDeps } from './deps.ts';
import { execCommand } from './exec.ts';
import { lifeCommands } from './life.ts';
import { listCommand } from './list.ts';
import { shellCommand } from './shell.ts';
import { treeCommand } from './tree.ts';

/** `snapgate sandbox …`. */
export function sandboxCommand(deps: SandboxCommandDeps): Command {
  const sandbox = new Command('sandbox')
    .description('machines with memory: run in them, fork, pause and rewind them')
    // So that options behind the command of `exec` are that command's own.
    .enablePositionalOptions();
  for (const command of [
    createCommand(deps),
    execCommand(deps),
    shellCommand(deps),
    copyCommand(deps),
    listCommand(deps),
    treeCommand(deps),
    ...lifeCommands(deps),
  ]) {
    sandbox.addCommand(command);
  }
  return sandbox;
}
