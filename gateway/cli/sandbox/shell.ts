import type { Readable } from 'node:stream';
import { Command } from 'commander';
import type { ProcessHandle } from '../../../sdk/index.ts';
import { type CliContext, type OutputStream, write } from '../context.ts';
import type { SandboxCommandDeps } from './deps.ts';
import { exitCodeOfProcess, tellGap, withoutSeparator } from './exec.ts';

/** What a terminal of ours can do; pipes can't. */
type Keyboard = Readable & { readonly isTTY?: boolean; setRawMode?: (isRaw: boolean) => void };
type Screen = OutputStream & { readonly rows?: number };

/** `snapgate sandbox shell`: our terminal becomes one inside, key by key. */
export function shellCommand({ context, snapgate, setExitCode }: SandboxCommandDeps): Command {
  return new Command('shell')
    .description('open a terminal in a sandbox')
    .argument('<id>', 'the sandbox')
    .argument('[command...]', 'instead of a login shell')
    .passThroughOptions()
    .option('--user <name>', 'user inside (default: user)')
    .option('--cwd <path>', 'directory inside')
    .action(async (id: string, words: string[], { user, cwd }: { user?: string; cwd?: string }) => {
      const sandbox = await snapgate().sandboxes.get(id, { signal: context.interrupted });
      const terminal = await sandbox.pty({
        ...sizeOf(context.stdout),
        user,
        cwd,
        env: { TERM: context.env.TERM ?? 'xterm-256color' },
        ...(words.length === 0 ? {} : { command: withoutSeparator(words) }),
        signal: context.interrupted,
      });
      using _connection = connectTerminal(terminal, context);
      const onGap = tellGap(context.stderr, 'the terminal');
      for await (const chunk of terminal.output({ onGap })) await write(context.stdout, chunk);
      setExitCode(exitCodeOfProcess(await terminal.wait()));
      await terminal.remove().catch(() => {});
    });
}

/** Keys go in and sizes follow until it is disposed; then our terminal is as it was. */
function connectTerminal(terminal: ProcessHandle, { stdin, stdout, interrupted }: CliContext): Disposable {
  const keyboard: Keyboard = stdin;
  // A terminal that ended takes no keys; its output's end tells that, not this.
  const type = (keys: Uint8Array) => void terminal.write(keys).catch(() => {});
  const hangUp = () => void terminal.kill(1).catch(() => {});
  const endInput = () => void terminal.closeStdin().catch(() => {});
  const resize = () => void terminal.resize(sizeOf(stdout)).catch(() => {});
  if (keyboard.isTTY) keyboard.setRawMode?.(true);
  keyboard.on('data', type).on('end', endInput);
  stdout.on('resize', resize);
  interrupted.addEventListener('abort', hangUp, { once: true });
  return {
    [Symbol.dispose]() {
      keyboard.off('data', type).off('end', endInput);
      stdout.off('resize', resize);
      interrupted.removeEventListener('abort', hangUp);
      if (keyboard.isTTY) keyboard.setRawMode?.(false);
      keyboard.destroy();
    },
  };
}

/** In characters, within what a terminal inside can have. */
function sizeOf({ columns, rows }: Screen): { readonly cols: number; readonly rows: number } {
  const bounded = (value: number | undefined, otherwise: number) =>
    value === undefined || value < 1 ? otherwise : Math.min(value, 1000);
  return { cols: bounded(columns, 80), rows: bounded(rows, 24) };
}
