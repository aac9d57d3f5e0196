import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, open, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';

/** What the doctor asks of a host. Each answer may be null, which means "not there or not to be found out". */
export interface HostProbes {
  /** The beginning of a file (64 KiB), which is all of those in /proc and /sys that matter. */
  readText(path: string): Promise<string | null>;
  canAccess(path: string, mode: 'read' | 'write' | 'exist'): Promise<boolean>;
  /** Free and total bytes where `path` lies or, while it does not exist, would lie. */
  diskSpace(path: string): Promise<{ readonly freeBytes: number; readonly totalBytes: number } | null>;
  /** Runs a program without a shell for at most 10 s; null when it is not installed. */
  run(
    file: string,
    argv: readonly string[],
  ): Promise<{ readonly exitCode: number; readonly output: string } | null>;
  readonly uid: number;
  /** As `process.version`. */
  readonly nodeVersion: string;
}

const textLimit = 64 * 1024;
const runTimeoutMs = 10_000;
const accessModes = { read: constants.R_OK, write: constants.W_OK, exist: constants.F_OK } as const;

/** The nearest directory above a path that exists. */
async function nearestExisting(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const isThere = await access(at).then(
      () => true,
      () => false,
    );
    if (isThere || at === dirname(at)) return at;
  }
}

/** Probes of the host this runs on. They change nothing. */
export function hostProbes(): HostProbes {
  return {
    async readText(path) {
      try {
        await using file = await open(path, 'r');
        const { buffer, bytesRead } = await file.read(Buffer.alloc(textLimit), 0, textLimit, null);
        return buffer.toString('utf8', 0, bytesRead);
      } catch {
        return null;
      }
    },
    canAccess: async (path, mode) =>
      access(mode === 'write' ? await nearestExisting(path) : path, accessModes[mode]).then(
        () => true,
        () => false,
      ),
    async diskSpace(path) {
      try {
        const { bavail, blocks, bsize } = await statfs(await nearestExisting(path));
        return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
      } catch {
        return null;
      }
    },
    run: (file, argv) =>
      new Promise((resolve) => {
        const options = { timeout: runTimeoutMs, killSignal: 'SIGKILL', maxBuffer: 1 << 20 } as const;
        const env = { ...process.env, LC_ALL: 'C.UTF-8' };
        execFile(file, [...argv], { ...options, env }, (error, stdout, stderr) => {
          if (error?.code === 'ENOENT') resolve(null);
          else
            resolve({
              exitCode: typeof error?.code === 'number' ? error.code : error ? 1 : 0,
              output: stdout + stderr,
            });
        });
      }),
    uid: process.getuid?.() ?? -1,
    nodeVersion: process.version,
  };
}
