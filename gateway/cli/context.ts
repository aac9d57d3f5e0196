import type { Readable, Writable } from 'node:stream';

/** A stream for people or for the next program in a pipe. */
export interface OutputStream extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/** All of the process that a command may touch. `main.ts` makes the real one; tests make their own. */
export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute. */
  readonly workingDirectory: string;
  /** Absolute. */
  readonly homeDirectory: string;
  /** Effective user id; 0 is root. */
  readonly userId: number;
  readonly stdin: Readable;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** Aborts on the first Ctrl-C or SIGTERM. */
  readonly interrupted: AbortSignal;
  /** Epoch milliseconds. */
  readonly now: () => number;
}

/**
 * Writes and waits until the stream took it, so that a slow reader slows us down instead of filling memory. Rejects
 * with the stream's error, such as `EPIPE` when the next program in the pipe ended.
 */
export function write(stream: Writable, chunk: string | Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(chunk, (error) => (error ? reject(error) : resolve()));
  });
}

/** One JSON document and a newline, for `--json`. */
export const writeJson = (context: CliContext, value: unknown): Promise<void> =>
  write(context.stdout, `${JSON.stringify(value, null, 2)}\n`);
