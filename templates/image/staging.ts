import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { randomName } from '../../sdk/index.ts';
import { unmountBelow } from './mounts.ts';

/** A directory for something half-made. Removed on disposal unless its content was moved away. */
export interface StagingDirectory extends AsyncDisposable {
  readonly path: string;
}

/** Makes and clears directories below one parent, on the file system where results are published by rename. */
export interface Staging {
  create(): Promise<StagingDirectory>;
  /** Removes what processes left that are no more. Never touches what a live process owns. */
  clearAbandoned(): Promise<void>;
}

const entryPattern = /^(\d+)-(\d+)-[a-z0-9]+$/;

/** Start time of a process in clock ticks since boot; with the pid it names a process for ever. Null when it is gone. */
async function startTicks(pid: number | 'self'): Promise<string | null> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'latin1');
    // The command in parentheses may hold anything; fields are counted after it (proc(5): starttime is field 22).
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}

async function removeTree(path: string): Promise<void> {
  await unmountBelow(path);
  await rm(path, { recursive: true, force: true, maxRetries: 3 });
}

/** Staging below `parentPath`, which is created with mode 0700 when needed. */
export function createStaging(parentPath: string): Staging {
  return {
    async create() {
      const ticks = (await startTicks('self')) ?? '0';
      const path = join(parentPath, `${process.pid}-${ticks}-${randomName(8)}`);
      await mkdir(path, { recursive: true, mode: 0o700 });
      return { path, [Symbol.asyncDispose]: () => removeTree(path) };
    },
    async clearAbandoned() {
      const names = await readdir(parentPath).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return [];
        throw error;
      });
      for (const name of names) {
        const match = entryPattern.exec(name);
        if (match === null) continue;
        if ((await startTicks(Number(match[1]))) !== match[2]) await removeTree(join(parentPath, name));
      }
    },
  };
}
