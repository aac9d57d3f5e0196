import { GatewayError, isGatewayError } from '../errors.ts';
import type { ProcessStatusInfo, StartProcessRequest } from '../wire/index.ts';
import type { ProcessHandle } from './process-handle.ts';
import type { KeyedCalling } from './sandbox-calls.ts';

export interface StartOptions extends KeyedCalling {
  /** `[A-Za-z0-9_-]{1,64}`. Default: random. */
  readonly id?: string | undefined;
  /** Added to the sandbox's own. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Absolute. Default: the user's home directory. */
  readonly cwd?: string | undefined;
  /** Name in the guest. Default `user`. */
  readonly user?: string | undefined;
  /** After this many milliseconds the process is killed with all its descendants. Default: never. */
  readonly timeoutMs?: number | undefined;
}

export interface RunOptions extends StartOptions {
  /** All of its input. Default: none, and reading gives end-of-file. */
  readonly stdin?: string | Uint8Array | undefined;
  /** Text as it comes; whole characters only. */
  readonly onStdout?: ((text: string) => void) | undefined;
  readonly onStderr?: ((text: string) => void) | undefined;
  /** Most bytes of each stream in the result; what is over is left out from its front. Default 8 MiB. */
  readonly maxOutputBytes?: number | undefined;
}

/** How a command ended, and what it said. */
export interface CommandResult extends ProcessStatusInfo {
  readonly stdout: string;
  readonly stderr: string;
  /** The beginning of an output is missing: more than `maxOutputBytes`, or written faster than it could be read. */
  readonly isTruncated: boolean;
}

const defaultOutputBytes = 8 * 1024 * 1024;

/** What the gateway is asked; a text goes through a shell, a list is run as it is. */
export function startRequest(
  command: string | readonly string[],
  options: StartOptions,
  more: Partial<StartProcessRequest>,
): Partial<StartProcessRequest> {
  const { id, env, cwd, user, timeoutMs } = options;
  return {
    ...(typeof command === 'string' ? { shell: command } : { argv: [...command] }),
    ...(id === undefined ? {} : { id }),
    ...(env === undefined ? {} : { env: { ...env } }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...more,
  };
}

/** Follows a process to its end. When the signal fires the process is killed. */
export async function followRun(process: ProcessHandle, options: RunOptions): Promise<CommandResult> {
  const stop = new AbortController();
  const signal = options.signal === undefined ? stop.signal : AbortSignal.any([options.signal, stop.signal]);
  const limit = options.maxOutputBytes ?? defaultOutputBytes;
  const outputs = [
    collect(process, 'stdout', limit, options.onStdout, signal),
    collect(process, 'stderr', limit, options.onStderr, signal),
  ] as const;
  const work = [feed(process, options.stdin, signal), process.wait({ signal }), ...outputs] as const;
  try {
    const [, status, stdout, stderr] = await Promise.all(work);
    return {
      ...status,
      stdout: stdout.text,
      stderr: stderr.text,
      isTruncated: stdout.isTruncated || stderr.isTruncated,
    };
  } catch (error) {
    stop.abort();
    await Promise.allSettled(work);
    if (options.signal?.aborted) {
      await process.kill().catch(() => {});
      throw new GatewayError('cancelled', 'the command was cancelled and killed', {
        component: 'sdk',
        cause: error,
      });
    }
    throw error;
  }
}

/** A process that ends without reading its input is no failure of the command. */
async function feed(
  process: ProcessHandle,
  stdin: string | Uint8Array | undefined,
  signal: AbortSignal,
): Promise<void> {
  if (stdin === undefined) return;
  try {
    await process.write(stdin, { signal });
    await process.closeStdin({ signal });
  } catch (error) {
    if (!isGatewayError(error, 'conflict', 'process_not_found')) throw error;
  }
}

async function collect(
  process: ProcessHandle,
  stream: 'stdout' | 'stderr',
  maxBytes: number,
  onText: ((text: string) => void) | undefined,
  signal: AbortSignal,
): Promise<{ readonly text: string; readonly isTruncated: boolean }> {
  const chunks: Uint8Array[] = [];
  const decoder = new TextDecoder();
  let size = 0;
  let isTruncated = false;
  const onGap = () => {
    isTruncated = true;
  };
  for await (const chunk of process[stream]({ signal, onGap })) {
    const text = onText === undefined ? '' : decoder.decode(chunk, { stream: true });
    if (text !== '') onText?.(text);
    chunks.push(chunk);
    size += chunk.length;
    while (size > maxBytes) {
      const first = chunks[0]!;
      const over = Math.min(first.length, size - maxBytes);
      if (over === first.length) chunks.shift();
      else chunks[0] = first.subarray(over);
      size -= over;
      isTruncated = true;
    }
  }
  const rest = decoder.decode();
  if (rest !== '') onText?.(rest);
  const whole = new TextDecoder();
  const texts = chunks.map((chunk) => whole.decode(chunk, { stream: true }));
  return { text: texts.join('') + whole.decode(), isTruncated };
}
