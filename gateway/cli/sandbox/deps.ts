import type { Snapgate } from '../../../sdk/index.ts';
import type { CliContext } from '../context.ts';

/** Collaborators of every `snapgate sandbox` command. */
export interface SandboxCommandDeps {
  readonly context: CliContext;
  readonly snapgate: () => Snapgate;
  /** Called with the exit code of a command that ran inside. */
  readonly setExitCode: (code: number) => void;
}
