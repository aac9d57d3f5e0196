/** The packed source that every version keeps, so that its snapshot can be made anew. */
import { link } from 'node:fs/promises';
import { join } from 'node:path';
import { GatewayError, isGatewayError, shortDigest, type VersionDigest } from '../../sdk/index.ts';
import { canonicalJson } from '../definition/index.ts';
import type { ArchiveLimits } from './archive/tree.ts';
import { snapshotFileNames } from './host-port.ts';
import { readManifest } from './manifest.ts';
import { type UnpackedTemplate, unpackSource } from './unpack-step.ts';
import { versionDirectory } from './version-directories.ts';

/**
 * Puts the source of a version into a build directory and unpacks it.
 * @throws GatewayError `version_not_found` without a source, `snapshot_corrupt` when it is not what was published
 */
export async function archivedTemplate(
  versionsDirectory: string,
  digest: VersionDigest,
  buildDirectory: string,
  limits: ArchiveLimits,
  signal: AbortSignal,
): Promise<UnpackedTemplate> {
  const old = versionDirectory(versionsDirectory, digest);
  const corrupt = (text: string, cause?: unknown) =>
    new GatewayError('snapshot_corrupt', `the archived source of version ${shortDigest(digest)} ${text}`, {
      component: 'templates',
      cause,
    });
  await link(join(old, snapshotFileNames.source), join(buildDirectory, snapshotFileNames.source)).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error;
      throw new GatewayError(
        'version_not_found',
        `version ${shortDigest(digest)} has no source on this host`,
        {
          component: 'templates',
          cause: error,
        },
      );
    },
  );
  const template = await unpackSource(buildDirectory, limits, signal).catch((error: unknown) => {
    throw isGatewayError(error, 'invalid_request') ? corrupt(`is damaged: ${error.message}`, error) : error;
  });
  // The image may have changed since, so the digest can't be compared; what it was made of can.
  const manifest = await readManifest(old);
  const isOther =
    typeof manifest === 'object' &&
    (manifest.contentDigest !== template.contentDigest ||
      canonicalJson(manifest.definition) !== canonicalJson(template.definition));
  if (isOther) throw corrupt('is not what was published');
  return template;
}
