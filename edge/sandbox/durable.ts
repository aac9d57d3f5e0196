/** Making files survive a power cut, and sums that are not taken twice. */
import { open, stat } from 'node:fs/promises';
import { LRUCache } from 'lru-cache';
import type { ImageDigester } from '../memory/index.ts';

/** Syncs a file, or the names in a directory. */
export async function syncPath(path: string): Promise<void> {
  await using file = await open(path, 'r');
  await file.sync();
}

const maxRemembered = 10_000;

/** Digest of a file that nobody writes to any more; by any of its names. */
export type FileDigest = (path: string, options: { readonly signal: AbortSignal }) => Promise<string>;

/**
 * Remembers what this edge has read: a layer is shared by many snapshots under other names. A new name changes a file's
 * ctime, so that is not looked at; who can change content and mtime back can change our memory as well.
 */
export function createFileDigest(digester: ImageDigester): FileDigest {
  const known = new LRUCache<string, string>({ max: maxRemembered });
  return async (path, options) => {
    const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
    const key = [dev, ino, size, mtimeNs].join(':');
    const digest = known.get(key) ?? (await digester.digest(path, options));
    known.set(key, digest);
    return digest;
  };
}
