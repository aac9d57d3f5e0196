import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { GatewayError } from '../../sdk/index.ts';

export interface CommandOptions {
  /** Ends the command and everything it started. */
  readonly signal: AbortSignal;
  readonly cwd?: string;
  /** The whole environment; nothing is inherited. */
  readonly env: Readonly<Record<string, string>>;
  /** Each line of stdout and stderr, control characters removed, at most 1,000 characters. */
  readonly onLine?: (line: string) => void;
}

/**
 * Runs a program without a shell and answers what it wrote to stdout (at most 1 MiB).
 * Throws `disk_full`, `host_not_ready` (program missing), `cancelled`, or `build_failed` with the last lines.
 */
export type RunCommand = (
  file: string,
  argv: readonly string[],
  options: CommandOptions,
) => Promise<{ readonly stdout: string }>;

const tailLines = 40;
const lineLimit = 1_000;
/** Before escapes are removed. */
const rawLineLimit = 16 * 1024;
const stdoutLimit = 1 << 20;
const killDelayMs = 5_000;
/** How setpriv ends when there is no such program. */
const missingProgram = 127;

const diskFullPattern = /no space left on device|disk quota exceeded|don't have enough free space/i;
// Terminal escape sequences and control characters must not reach a reader's terminal.
// biome-ignore lint/suspicious/noControlCharactersInRegex: removing them is the purpose
const controlPattern = /\u001b\[[0-9;?]*[A-Za-z]|[\u0000-\u0008\u000b-\u001f\u007f]/g;

const cleanLine = (line: string): string => line.replace(controlPattern, '').slice(0, lineLimit);

/** Calls back for every line; what exceeds the bound of a line is dropped as it comes. Resolves at the end. */
async function eachLine(stream: Readable, onLine: (line: string) => void): Promise<void> {
  stream.setEncoding('utf8');
  let rest = '';
  for await (const chunk of stream as AsyncIterable<string>) {
    const lines = (rest + chunk).split(/\r?\n|\r/);
    rest = lines.pop()!.slice(0, rawLineLimit);
    for (const line of lines) onLine(cleanLine(line));
  }
  if (rest !== '') onLine(cleanLine(rest));
}

/**
 * Starts programs with `setpriv --pdeathsig KILL`, so that none of them outlives this process: a build that goes on
 * after its owner died would write into a directory which the next owner clears.
 */
export const runCommand: RunCommand = async (file, argv, options) => {
  options.signal.throwIfAborted();
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', file, ...argv], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...options.env },
    detached: true,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  const tail: string[] = [];
  let stdout = '';
  let isDiskFull = false;
  const take = (line: string): void => {
    tail.push(line);
    if (tail.length > tailLines) tail.shift();
    isDiskFull ||= diskFullPattern.test(line);
    options.onLine?.(line);
  };
  const signalGroup = (name: 'SIGTERM' | 'SIGKILL'): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, name);
    } catch {
      // The group has ended already.
    }
  };
  let killTimer: NodeJS.Timeout | undefined;
  const abort = (): void => {
    signalGroup('SIGTERM');
    killTimer = setTimeout(() => signalGroup('SIGKILL'), killDelayMs);
  };
  options.signal.addEventListener('abort', abort, { once: true });
  try {
    const ended = new Promise<{ exitCode: number | null; signalName: string | null }>((resolve, reject) => {
      child.once('error', (error) => reject(notInstalled('setpriv', error.message)));
      child.once('close', (exitCode, signalName) => resolve({ exitCode, signalName }));
    });
    const [{ exitCode, signalName }] = await Promise.all([
      ended,
      eachLine(child.stdout, (line) => {
        if (stdout.length < stdoutLimit) stdout += `${line}\n`;
        take(line);
      }),
      eachLine(child.stderr, take),
    ]);
    if (exitCode === 0) return { stdout };
    options.signal.throwIfAborted();
    const output = tail.join('\n');
    if (isDiskFull) {
      throw new GatewayError('disk_full', `the disk filled up while ${file} ran`, {
        component: 'templates',
        output,
      });
    }
    if (exitCode === missingProgram) throw notInstalled(file, output);
    throw new GatewayError('build_failed', `${file} failed (${signalName ?? `exit code ${exitCode}`})`, {
      component: 'templates',
      output,
    });
  } finally {
    options.signal.removeEventListener('abort', abort);
    clearTimeout(killTimer);
  }
};

const notInstalled = (program: string, output: string): GatewayError =>
  new GatewayError('host_not_ready', `the program ${program} cannot be started on this host`, {
    component: 'templates',
    output,
  });

/** Maps what file system calls and aborts throw; errors that are ours already pass through. */
export function toImageError(error: unknown, doing: string): GatewayError {
  if (error instanceof GatewayError) return error;
  const { code, name } = error as NodeJS.ErrnoException;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new GatewayError('disk_full', `the disk filled up while ${doing}`, {
      component: 'templates',
      cause: error,
    });
  }
  if (name === 'AbortError') {
    return new GatewayError('cancelled', `${doing} was cancelled`, { component: 'templates', cause: error });
  }
  if (name === 'TimeoutError') {
    return new GatewayError('build_failed', `${doing} took too long`, {
      component: 'templates',
      cause: error,
    });
  }
  const detail = error instanceof Error ? error.message : String(error);
  return new GatewayError('build_failed', `${doing} failed: ${detail}`, {
    component: 'templates',
    cause: error,
  });
}
