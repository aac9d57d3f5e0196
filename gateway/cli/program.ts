/** The command line as a whole. Only the command that was asked for is loaded; the others are a name and a summary. */
import { Command, CommanderError } from 'commander';
import { addConnectionOptions, addVerboseOption, type SharedFlags } from './command-options.ts';
import { type CliContext, write } from './context.ts';

/** What a command is given when it is loaded. */
export interface CommandDeps {
  readonly context: CliContext;
  /** Flags of the command that runs; filled in before its action does. */
  readonly flags: () => SharedFlags;
  /** Ends the process with this code although the command succeeded. */
  readonly setExitCode: (code: number) => void;
}

/** One top-level command. */
export interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  /** Heading in `--help`. */
  readonly group: string;
  /** Talks to a gateway and so takes an address and a key: all of it, nothing of it, or the named subcommands. */
  readonly remote: 'all' | 'none' | readonly string[];
  readonly load: (deps: CommandDeps) => Promise<Command>;
}

/** What does not belong to a single command. */
export interface ProgramOptions {
  readonly version: string;
  /** Text after the list of commands. */
  readonly footer: string;
}

/**
 * Runs one command line.
 * @returns the exit code. Errors of commander have been printed by then; all others reject.
 */
export async function runProgram(
  words: readonly string[],
  entries: readonly CommandEntry[],
  context: CliContext,
  options: ProgramOptions,
): Promise<number> {
  let exitCode = 0;
  let flags: SharedFlags = {};
  const program = emptyProgram(context, options);
  const wanted = wantedCommand(words);
  for (const entry of entries) {
    if (entry.name !== wanted) {
      program.command(entry.name).description(entry.summary).helpGroup(entry.group);
      continue;
    }
    const command = await entry.load({
      context,
      flags: () => flags,
      setExitCode: (code) => {
        exitCode = code;
      },
    });
    addConnectionOptions(command, entry.remote);
    addVerboseOption(command);
    command.hook('preAction', (_, action) => {
      flags = action.opts<SharedFlags>();
    });
    program.addCommand(command.helpGroup(entry.group));
    inheritSettings(command, program);
  }
  try {
    await program.parseAsync([...words], { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // Help that was asked for is no error; everything else commander ends with is wrong usage.
    return error.exitCode === 0 ? 0 : 2;
  }
  return exitCode;
}

/** `--verbose` anywhere on the line, for errors that come before a command has its flags. */
export const isVerbose = (words: readonly string[]): boolean => words.includes('--verbose');

function emptyProgram({ stdout, stderr }: CliContext, { version, footer }: ProgramOptions): Command {
  return new Command('snapgate')
    .description('HTTP functions answered by clones of warm microVM memory snapshots.')
    .version(version)
    .enablePositionalOptions()
    .exitOverride()
    .showSuggestionAfterError()
    .configureOutput({
      writeOut: (text) => void write(stdout, text).catch(() => {}),
      writeErr: (text) => void write(stderr, text).catch(() => {}),
      getOutHelpWidth: () => stdout.columns ?? 100,
      getErrHelpWidth: () => stderr.columns ?? 100,
    })
    .addHelpText('after', `\n${footer}`);
}

/** The program has no option that takes a value, so the first bare word is the command. */
function wantedCommand(words: readonly string[]): string | undefined {
  const [first, second] = words.filter((word) => !word.startsWith('-'));
  return first === 'help' ? second : first;
}

function inheritSettings(command: Command, parent: Command): void {
  command.copyInheritedSettings(parent);
  for (const child of command.commands) inheritSettings(child, command);
}
