import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { type SnapshotHost, snapshotFileNames } from '../../templates/index.ts';
import type { ImageDigester } from '../memory/index.ts';

const maxRemembered = 3_000;

/**
 * Checksums of the snapshot files in a directory. A file that this edge has read and that was not touched since (same inode,
 * size and times) is not read again: a publish of an unchanged folder would otherwise hash its memory once more.
 */
export function createChecksums(digester: ImageDigester): SnapshotHost['checksums'] {
  const known = new LRUCache<string, string>({ max: maxRemembered });
  return async (directory, { signal }) => {
    const names = [snapshotFileNames.memory, snapshotFileNames.state, snapshotFileNames.disk];
    const pairs = names.map(async (name) => {
      const path = join(directory, name);
      const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
      const identity = [dev, ino, size, mtimeNs, ctimeNs].join(':');
      const digest = known.get(identity) ?? (await digester.digest(path, { signal }));
      known.set(identity, digest);
      return [name, digest] as const;
    });
    return Object.fromEntries(await Promise.all(pairs));
  };
}
