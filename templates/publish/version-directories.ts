/** Version directories as names on disk: making, replacing, removing and finding them, so that a crash loses nothing. */
import { randomBytes } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isVersionDigest, type VersionDigest } from '../../sdk/index.ts';

const hexOf = (digest: VersionDigest): string => digest.slice('sha256:'.length);

/** Where the files of a version are, or would be. */
export const versionDirectory = (versionsDirectory: string, digest: VersionDigest): string =>
  join(versionsDirectory, hexOf(digest));

/** Size of what is at `path`; undefined when nothing is. */
export const bytesOf = (path: string): Promise<number | undefined> =>
  stat(path).then(
    (stats) => stats.size,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    },
  );

const building = '.building-';
const replaced = '.replaced-';
const removed = '.removed-';
const randomSuffix = (): string => randomBytes(8).toString('hex');

/** A new private directory for a build; {@link sweepVersions} removes it if nobody else does. */
export async function makeBuildDirectory(versionsDirectory: string): Promise<string> {
  await mkdir(versionsDirectory, { recursive: true, mode: 0o700 });
  const directory = join(versionsDirectory, `${building}${randomSuffix()}`);
  await mkdir(directory, { mode: 0o700 });
  return directory;
}

async function syncDirectory(directory: string): Promise<void> {
  await using handle = await open(directory, 'r');
  await handle.sync();
}

/**
 * Moves a finished build to its place, replacing an unusable version of the same digest. A crash at any point leaves
 * either the old or the new one for {@link sweepVersions} to find.
 */
export async function putInPlace(
  versionsDirectory: string,
  buildDirectory: string,
  digest: VersionDigest,
): Promise<void> {
  const target = versionDirectory(versionsDirectory, digest);
  await syncDirectory(buildDirectory);
  const old = join(versionsDirectory, `${replaced}${hexOf(digest)}-${randomSuffix()}`);
  const hadOld = await rename(target, old).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return false;
      throw error;
    },
  );
  try {
    await rename(buildDirectory, target);
  } catch (error) {
    if (hadOld) await rename(old, target);
    throw error;
  }
  await syncDirectory(versionsDirectory);
  if (hadOld) await rm(old, { recursive: true, force: true });
}

/** Removes a version's files; nothing happens when there are none. The caller made sure that no machine uses them. */
export async function removeVersionFiles(versionsDirectory: string, digest: VersionDigest): Promise<void> {
  // Renamed first, so that a crash in the middle leaves no version that looks complete.
  const trash = join(versionsDirectory, `${removed}${randomSuffix()}`);
  try {
    await rename(versionDirectory(versionsDirectory, digest), trash);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  await rm(trash, { recursive: true, force: true });
}

/** Digests of all version directories, usable or not. */
export async function listVersionDirectories(versionsDirectory: string): Promise<VersionDigest[]> {
  const names = await readdir(versionsDirectory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return names
    .map((name) => `sha256:${name}`)
    .filter(isVersionDigest)
    .sort();
}

/**
 * Removes what a crash left behind, and puts a version back that was being replaced. Call once at start, before any build.
 * @returns names of the directories it dealt with
 */
export async function sweepVersions(versionsDirectory: string): Promise<string[]> {
  await mkdir(versionsDirectory, { recursive: true, mode: 0o700 });
  const swept: string[] = [];
  for (const name of await readdir(versionsDirectory)) {
    const path = join(versionsDirectory, name);
    if (name.startsWith(replaced)) {
      const target = join(versionsDirectory, name.slice(replaced.length, replaced.length + 64));
      const isMissing = (await bytesOf(target)) === undefined;
      if (isMissing) await rename(path, target);
      else await rm(path, { recursive: true, force: true });
    } else if (name.startsWith(building) || name.startsWith(removed)) {
      await rm(path, { recursive: true, force: true });
    } else continue;
    swept.push(name);
  }
  return swept;
}
