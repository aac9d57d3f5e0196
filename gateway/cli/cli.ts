import { commandEntries } from './commands.ts';
import { type CliContext, write } from './context.ts';
import { type CommandEntry, isVerbose, runProgram } from './program.ts';

const version = '0.1.0';

// Kept as text so that `--help` need not load the SDK; a test compares it with `exit-codes.ts`.
const footer = `Exit codes: 0 done · 1 failed · 2 wrong usage or input · 3 no gateway answers · 4 key refused
            5 try again later · 130 interrupted

In a checkout: npm run -s snapgate -- <command>. A gateway on this machine needs no address and no key.`;

/**
 * Runs one command line and prints its error, if any.
 * @returns the exit code; never rejects
 */
export async function runCli(
  words: readonly string[],
  context: CliContext,
  entries: readonly CommandEntry[] = commandEntries,
): Promise<number> {
  try {
    return await runProgram(words, entries, context, { version, footer });
  } catch (error) {
    // The next program in the pipe has had enough, as in `snapgate logs hello | head`.
    if ((error as NodeJS.ErrnoException).code === 'EPIPE') return 0;
    const { errorReport, toCliError } = await import('./error-report.ts');
    const { exitCodeOf, exitCodes } = await import('./exit-codes.ts');
    const failure = toCliError(error);
    if (context.interrupted.aborted) return exitCodes.interrupted.code;
    await write(context.stderr, errorReport(failure, { isVerbose: isVerbose(words) })).catch(() => {});
    return exitCodeOf(failure);
  }
}
