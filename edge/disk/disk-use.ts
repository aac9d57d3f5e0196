/** How much of the disk a node's files take. */
import type { Dirent } from 'node:fs';
import { lstat, readdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../sdk/index.ts';

export interface DiskUse {
  /** Bytes that are really allocated below the directories; sparse parts don't count, linked files count once. */
  readonly usedBytes: number;
  /** What a file may still grow to on the filesystem of the first directory. */
  readonly freeBytes: number;
}

/** An answer serves everybody who asks for so long: a walk over thousands of files is not free. */
const keptMs = 1_000;
/** Directories below directories; ours are three deep. */
const maxDepth = 8;

/**
 * Measures when asked. What comes and goes meanwhile may be missed; what can't be read is left out.
 * @returns null when the filesystem doesn't answer
 */
export function createDiskUse(
  deps: { readonly clock: Clock },
  options: { readonly directories: readonly [string, ...string[]] },
): () => Promise<DiskUse | null> {
  let answer: Promise<DiskUse | null> | undefined;
  let until = 0;
  return () => {
    const now = deps.clock.monotonic();
    if (answer === undefined || now >= until) {
      until = now + keptMs;
      answer = measure(options.directories).catch(() => null);
    }
    return answer;
  };
}

async function measure(directories: readonly [string, ...string[]]): Promise<DiskUse> {
  const { bavail, bsize } = await statfs(directories[0]);
  const seen = new Set<string>();
  let usedBytes = 0;
  for (const directory of directories) usedBytes += await sizeBelow(directory, seen, 0);
  return { usedBytes, freeBytes: bavail * bsize };
}

async function sizeBelow(directory: string, seen: Set<string>, depth: number): Promise<number> {
  if (depth > maxDepth) return 0;
  const entries: Dirent[] = await readdir(directory, { withFileTypes: true }).catch(() => []);
  let bytes = 0;
  for (const entry of entries) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) bytes += await sizeBelow(path, seen, depth + 1);
    else if (entry.isFile()) bytes += await sizeOf(path, seen);
  }
  return bytes;
}

async function sizeOf(path: string, seen: Set<string>): Promise<number> {
  const file = await lstat(path).catch(() => null);
  if (file === null) return 0;
  if (file.nlink > 1) {
    const inode = `${file.dev}:${file.ino}`;
    if (seen.has(inode)) return 0;
    seen.add(inode);
  }
  return file.blocks * 512;
}
