/** Checksums of a snapshot's files: taken at capture, compared before the first restore. */
import { stat } from 'node:fs/promises';
import { z } from '@hono/zod-openapi';
import { GatewayError } from '../../sdk/index.ts';
import type { SnapshotFiles } from '../vmm/port.ts';
import type { ImageDigester } from './image-digester.ts';

const fileChecksumSchema = z.strictObject({
  bytes: z.int().nonnegative(),
  /** See `image-digest.ts` for what it is over. */
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/),
});

/** To be kept in the snapshot's manifest. */
export const snapshotChecksumsSchema = z.strictObject({
  memory: fileChecksumSchema,
  state: fileChecksumSchema,
  disk: fileChecksumSchema,
});
export type SnapshotChecksums = Readonly<z.infer<typeof snapshotChecksumsSchema>>;

type FileKind = keyof SnapshotChecksums;
const kinds: readonly FileKind[] = ['memory', 'state', 'disk'];

function pathOf(files: SnapshotFiles, kind: FileKind): string {
  switch (kind) {
    case 'memory':
      return files.memoryPath;
    case 'state':
      return files.statePath;
    case 'disk':
      return files.diskPath;
  }
}

/** Reads all files; they must not change any more. Rejects with the system's error. */
export async function takeChecksums(
  digester: ImageDigester,
  files: SnapshotFiles,
  options: { readonly signal: AbortSignal },
): Promise<SnapshotChecksums> {
  const take = async (kind: FileKind) => {
    const path = pathOf(files, kind);
    const { size } = await stat(path);
    return { bytes: size, digest: await digester.digest(path, options) };
  };
  const [memory, state, disk] = await Promise.all([take('memory'), take('state'), take('disk')]);
  return { memory, state, disk };
}

/**
 * Throws `snapshot_corrupt` naming the files that are missing, unreadable or different; rejects with the signal's reason
 * when aborted. Sizes are compared before anything is read.
 */
export async function verifyChecksums(
  digester: ImageDigester,
  files: SnapshotFiles,
  expected: SnapshotChecksums,
  options: { readonly signal: AbortSignal },
): Promise<void> {
  const verdicts = await Promise.all(
    kinds.map(async (kind) => {
      const path = pathOf(files, kind);
      const found = await stat(path).catch(() => null);
      if (found === null) return `the ${kind} file is missing`;
      if (found.size !== expected[kind].bytes) return `the ${kind} file has a wrong size`;
      const digest = await digester.digest(path, options).catch(() => null);
      options.signal.throwIfAborted();
      if (digest === null) return `the ${kind} file can't be read`;
      return digest === expected[kind].digest ? null : `the ${kind} file has a wrong checksum`;
    }),
  );
  const faults = verdicts.filter((verdict) => verdict !== null);
  if (faults.length > 0)
    throw new GatewayError('snapshot_corrupt', `the snapshot is damaged: ${faults.join(', ')}`, {
      component: 'edge',
    });
}
