import { Command } from 'commander';
import type { ProcessHandle, ProcessStatusInfo } from '../../../sdk/index.ts';
import { wholeNumber } from '../command-options.ts';
import { type OutputStream, write } from '../context.ts';
import type { SandboxCommandDeps } from './deps.ts';
import { keyValue } from './pairs.ts';

interface Flags {
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
  readonly timeoutMs?: number;
  readonly interactive?: boolean;
}

/** `snapgate sandbox exec`: its streams and its exit code become ours. */
export function execCommand({ context, snapgate, setExitCode }: SandboxCommandDeps): Command {
  return new Command('exec')
    .description('run a command in a sandbox; its exit code becomes ours')
    .argument('<id>', 'the sandbox')
    .argument('<command...>', 'program and arguments, run without a shell')
    .passThroughOptions()
    .option('-i, --interactive', 'pass our stdin on')
    .option('-e, --env <key=value>', 'may be repeated', keyValue, {})
    .option('--cwd <path>', 'directory inside')
    .option('--user <name>', 'user inside (default: user)')
    .option('--timeout-ms <ms>', 'kill it after this time', wholeNumber(1, 30 * 86_400_000))
    .action(async (id: string, words: string[], flags: Flags) => {
      const { env, cwd, user, timeoutMs } = flags;
      const signal = context.interrupted;
      const sandbox = await snapgate().sandboxes.get(id, { signal });
      const process = await sandbox.start(withoutSeparator(words), { env, cwd, user, timeoutMs, signal });
      // Ctrl-C is meant for the command, which would otherwise go on without us.
      const kill = () => void process.kill(2).catch(() => {});
      signal.addEventListener('abort', kill, { once: true });
      try {
        const input = flags.interactive ? passInput(process, context.stdin) : process.closeStdin();
        input.catch(() => {});
        const following = (name: string) => ({ onGap: tellGap(context.stderr, name) });
        await Promise.all([
          passOutput(process.stdout(following('stdout')), context.stdout),
          passOutput(process.stderr(following('stderr')), context.stderr),
        ]);
        setExitCode(exitCodeOfProcess(await process.wait()));
      } finally {
        signal.removeEventListener('abort', kill);
        context.stdin.destroy();
      }
    });
}

/** Since options pass through, commander leaves a `--` that people write before the command, as they do with ssh or docker. */
export const withoutSeparator = (words: readonly string[]): string[] =>
  words[0] === '--' ? words.slice(1) : [...words];

/** As a shell tells it: the exit code, or 128 and the signal; 124 for its own timeout. */
export function exitCodeOfProcess({ exitCode, signal, isTimedOut }: ProcessStatusInfo): number {
  if (isTimedOut) return 124;
  return exitCode ?? 128 + (signal ?? 0);
}

/** Says on stderr how much of an output nobody can read any more. */
export const tellGap = (stderr: OutputStream, name: string) => (from: number, to: number) =>
  void write(stderr, `snapgate: ${to - from} bytes of ${name} from byte ${from} on are gone\n`);

async function passInput(process: ProcessHandle, stdin: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of stdin) await process.write(chunk);
  await process.closeStdin();
}

async function passOutput(source: AsyncIterable<Uint8Array>, target: OutputStream): Promise<void> {
  for await (const chunk of source) await write(target, chunk);
}
