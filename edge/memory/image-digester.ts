/** Digests of snapshot files on worker threads: hashing 256 MiB would hold the event loop for a fifth of a second. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Tinypool } from 'tinypool';
import type { Extents } from './image-digest.ts';
import type { DigestTask } from './image-digest-worker.ts';

const run = promisify(execFile);
/** A line of the tool has about 20 bytes; an image of 64 GiB with a hole after every page stays below. */
const maxExtentOutputBytes = 256 * 2 ** 20;
const extentsTimeoutMs = 30_000;
const idleMs = 10_000;

export interface ImageDigester extends AsyncDisposable {
  /** `sha256:<64 hex>` of the content. Rejects when the file can't be read, or with the signal's reason. */
  digest(path: string, options: { readonly signal: AbortSignal }): Promise<string>;
}

export interface ImageDigesterOptions {
  /** `edge/native/build/data-extents`. Without it every byte is read. */
  readonly extentsToolPath: string | null;
  /** Default 2. */
  readonly maxThreads?: number;
}

/** Threads are started with the first work and end when idle; disposing ends them at once. */
export function createImageDigester(options: ImageDigesterOptions): ImageDigester {
  const pool = new Tinypool({
    filename: new URL('./image-digest-worker.ts', import.meta.url).href,
    runtime: 'worker_threads',
    minThreads: 0,
    maxThreads: options.maxThreads ?? 2,
    idleTimeout: idleMs,
  });
  return {
    async digest(path, { signal }) {
      signal.throwIfAborted();
      const tool = options.extentsToolPath;
      const extents = tool === null ? null : await dataExtents(tool, path, signal);
      const task: DigestTask = { path, extents };
      return (await pool.run(task, { signal })) as string;
    },
    [Symbol.asyncDispose]: () => pool.destroy(),
  };
}

/** Asks the native tool where the file has data. */
async function dataExtents(tool: string, path: string, signal: AbortSignal): Promise<Extents> {
  const options = { signal, timeout: extentsTimeoutMs, maxBuffer: maxExtentOutputBytes, env: {} };
  const { stdout } = await run(tool, [path], options);
  return parseExtents(stdout);
}

/** Lines of `OFFSET LENGTH`. Throws on anything else: a digest over half the data would be worse than none. */
export function parseExtents(text: string): Extents {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const match = /^(\d{1,15}) (\d{1,15})$/.exec(line);
      if (match === null) throw new Error('the list of extents has a malformed line');
      return [Number(match[1]), Number(match[2])] as const;
    });
}
