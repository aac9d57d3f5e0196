/** One digest over a template's files: names, kinds, executable bits and bytes; not times, owners or pack order. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { canonicalJson } from '../../definition/index.ts';
import { byPath, type TreeEntry } from './tree.ts';

async function fileDigest(path: string, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash, { signal });
  return hash.digest('hex');
}

/** `sha256:<64 hex>` over the entries of `folder`, whatever order they come in. */
export async function contentDigest(
  folder: string,
  entries: readonly TreeEntry[],
  { signal }: { readonly signal: AbortSignal },
): Promise<string> {
  const digest = createHash('sha256');
  for (const entry of [...entries].sort(byPath)) {
    const line =
      entry.kind === 'file'
        ? { ...entry, sha256: await fileDigest(join(folder, entry.path), signal) }
        : entry;
    digest.update(`${canonicalJson(line)}\n`);
  }
  return `sha256:${digest.digest('hex')}`;
}
