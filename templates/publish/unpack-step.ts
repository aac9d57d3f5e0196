/** From an upload to a checked template folder on disk. */
import { createWriteStream } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { parseDefinitionText, type TemplateDefinition } from '../definition/index.ts';
import { contentDigest } from './archive/content-digest.ts';
import { atMost, refuseArchive } from './archive/listing.ts';
import { definitionFileName } from './archive/pack.ts';
import { readCopySource } from './archive/sources.ts';
import { type ArchiveLimits, byPath } from './archive/tree.ts';
import { unpackTemplate } from './archive/unpack.ts';
import { snapshotFileNames } from './host-port.ts';

const maxDefinitionBytes = 1024 * 1024;

/** An unpacked, checked template. */
export interface UnpackedTemplate {
  readonly definition: TemplateDefinition;
  /** Holds the template's files; inside the build directory, removed before that becomes a version. */
  readonly folder: string;
  readonly contentDigest: string;
}

/**
 * Keeps the upload as `source.tar.gz` in the build directory. The archive stays the caller's: one that is refused midway is
 * left where it was, since destroying a request's body would cut the connection before its answer was sent.
 * @throws GatewayError `invalid_request` when it is too large or breaks off
 */
export async function receiveArchive(
  archive: Readable,
  buildDirectory: string,
  limits: ArchiveLimits,
  signal: AbortSignal,
): Promise<void> {
  const path = join(buildDirectory, snapshotFileNames.source);
  try {
    await pipeline(
      archive.iterator({ destroyOnReturn: false }),
      atMost(limits.archiveBytes, 'the packed template'),
      createWriteStream(path, { flags: 'wx', mode: 0o600 }),
      { signal },
    );
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (signal.aborted || (code !== 'ERR_STREAM_PREMATURE_CLOSE' && code !== 'ECONNRESET')) throw error;
    throw refuseArchive('the upload ended before the archive was complete', error);
  }
}

/**
 * Unpacks the build directory's `source.tar.gz`, parses the definition and checks that every copied path is there.
 * @throws GatewayError `invalid_request`, `invalid_definition`, `not_supported_yet`
 */
export async function unpackSource(
  buildDirectory: string,
  limits: ArchiveLimits,
  signal: AbortSignal,
): Promise<UnpackedTemplate> {
  const folder = join(buildDirectory, 'content');
  await mkdir(folder, { mode: 0o700 });
  const entries = await unpackTemplate(join(buildDirectory, snapshotFileNames.source), folder, limits, {
    signal,
  });
  const root = entries.find((entry) => entry.path === definitionFileName);
  if (root?.kind !== 'file') throw refuseArchive(`the archive has no ${definitionFileName} at its root`);
  if (root.size > maxDefinitionBytes) throw refuseArchive(`${definitionFileName} is larger than 1 MiB`);
  const definition = parseDefinitionText(await readFile(join(folder, definitionFileName), 'utf8'));
  for (const [index, { from }] of definition.copy.entries()) {
    await readCopySource(folder, from, `copy.${index}.from`, limits);
  }
  // The definition counts by its meaning, not by its bytes, so its file is left out here.
  const content = entries.filter((entry) => entry.path !== definitionFileName).sort(byPath);
  return { definition, folder, contentDigest: await contentDigest(folder, content, { signal }) };
}
