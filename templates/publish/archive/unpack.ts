/** Extracts an uploaded template after all of it was checked. */
import { extract, type ReadEntry } from 'tar';
import { GatewayError } from '../../../sdk/index.ts';
import { listArchive } from './listing.ts';
import type { ArchiveLimits, TreeEntry } from './tree.ts';

/**
 * Unpacks the gzipped tar at `archivePath` into the existing empty `directory`, which the caller owns and removes.
 * Files get mode 0600 or 0700 and this process's owner, whatever the archive says.
 * @returns what the directory holds now
 * @throws GatewayError `invalid_request` for anything that is not a plain template within `limits`
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
  }).catch(refuseOddity);
  signal.throwIfAborted();
  return entries;
}

/** What our own check let pass and the library, which has its own idea of some names (`\/a` is absolute for it), does not. */
function refuseOddity(cause: unknown): never {
  const code = (cause as { code?: unknown }).code;
  if (typeof code !== 'string' || !code.startsWith('TAR_')) throw cause;
  throw new GatewayError('invalid_request', `the archive cannot be unpacked: ${(cause as Error).message}`, {
    field: 'archive',
    cause,
  });
}
