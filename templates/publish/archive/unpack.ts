/** Extracts an uploaded template after all of it was checked. */
import { extract, type ReadEntry } from 'tar';
import { listArchive } from './listing.ts';
import type { ArchiveLimits, TreeEntry } from './tree.ts';

/**
 * Unpacks the gzipped tar at `archivePath` into the existing empty `directory`, which the caller owns and removes.
 * Files get mode 0600 or 0700 and this process's owner, whatever the archive says.
 * @returns what the directory holds now
 * @throws GatewayError `invalid_request` for anything that is not a plain template within `limits`; nothing was made then
 */
export async function unpackTemplate(
  archivePath: string,
  directory: string,
  limits: ArchiveLimits,
  { signal }: { readonly signal: AbortSignal },
): Promise<TreeEntry[]> {
  const entries = await listArchive(archivePath, limits, { signal });
  await extract({
    file: archivePath,
    cwd: directory,
    strict: true,
    preserveOwner: false,
    noMtime: true,
    filter: (_path, member) => {
      const mode = (member as ReadEntry).mode ?? 0;
      const isOpen = (mode & 0o111) !== 0 || (member as ReadEntry).type === 'Directory';
      (member as ReadEntry).mode = isOpen ? 0o700 : 0o600;
      return true;
    },
  });
  signal.throwIfAborted();
  return entries;
}
