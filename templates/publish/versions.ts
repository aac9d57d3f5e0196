/** Reads the version in a directory and judges whether it can be restored here. */
import { join } from 'node:path';
import { GatewayError, shortDigest, type VersionDigest, type VersionFacts } from '../../sdk/index.ts';
import type { TemplateDefinition } from '../definition/index.ts';
import { type GuestImage, type HostFingerprint, type SnapshotHost, snapshotFileNames } from './host-port.ts';
import { type Manifest, readManifest } from './manifest.ts';
import { bytesOf, versionDirectory } from './version-directories.ts';

/** Files of a snapshot, as a manifest lists them. */
export const snapshotFiles = [
  snapshotFileNames.memory,
  snapshotFileNames.state,
  snapshotFileNames.disk,
] as const;

/** A complete version on this host's disk. Paths are absolute. */
export interface LoadedVersion {
  readonly digest: VersionDigest;
  readonly directory: string;
  readonly definition: TemplateDefinition;
  readonly image: GuestImage;
  readonly memoryPath: string;
  readonly statePath: string;
  readonly diskPath: string;
  readonly facts: VersionFacts;
  readonly manifest: Manifest;
}

/** Whether a version can serve on this host; the reason is a sentence for people. */
export type Inspection =
  | { readonly state: 'usable'; readonly version: LoadedVersion }
  | { readonly state: 'unusable'; readonly reason: string }
  | { readonly state: 'absent' };

async function fileProblem(directory: string, manifest: Manifest): Promise<string | undefined> {
  for (const name of snapshotFiles) {
    const expected = manifest.files[name];
    if (expected === undefined) return `its manifest does not list ${name}`;
    const bytes = await bytesOf(join(directory, name));
    if (bytes === undefined) return `${name} is missing`;
    if (bytes !== expected.bytes) return `${name} has ${bytes} bytes instead of ${expected.bytes}`;
  }
  const { kernelPath, initrdPath, rootPath } = manifest.image;
  for (const path of [kernelPath, initrdPath, rootPath]) {
    if ((await bytesOf(path)) === undefined) return `the image file ${path} is missing`;
  }
  return undefined;
}

/** Reads and checks everything but the bytes of the snapshot. */
async function readVersion(versionsDirectory: string, digest: VersionDigest): Promise<Inspection> {
  const directory = versionDirectory(versionsDirectory, digest);
  const manifest = await readManifest(directory);
  if (manifest === undefined) {
    return (await bytesOf(directory)) === undefined
      ? { state: 'absent' }
      : { state: 'unusable', reason: 'its manifest is missing' };
  }
  if (typeof manifest === 'string') return { state: 'unusable', reason: manifest };
  if (manifest.digest !== digest) return { state: 'unusable', reason: 'its manifest is of another version' };
  const reason = await fileProblem(directory, manifest);
  if (reason !== undefined) return { state: 'unusable', reason };
  const version: LoadedVersion = {
    digest,
    directory,
    definition: manifest.definition,
    image: manifest.image,
    memoryPath: join(directory, snapshotFileNames.memory),
    statePath: join(directory, snapshotFileNames.state),
    diskPath: join(directory, snapshotFileNames.disk),
    facts: manifest.facts as VersionFacts,
    manifest,
  };
  return { state: 'usable', version };
}

/**
 * Reads a version; does not read its memory (see {@link verifyChecksums}) nor compare fingerprints.
 * @throws GatewayError `version_not_found` when this host doesn't have it, `snapshot_corrupt` with the reason
 */
export async function loadVersion(versionsDirectory: string, digest: VersionDigest): Promise<LoadedVersion> {
  const inspection = await readVersion(versionsDirectory, digest);
  if (inspection.state === 'usable') return inspection.version;
  const name = `version ${shortDigest(digest)}`;
  throw inspection.state === 'absent'
    ? new GatewayError('version_not_found', `${name} is not on this host`, { component: 'templates' })
    : new GatewayError('snapshot_corrupt', `${name} can't be used: ${inspection.reason}`, {
        component: 'templates',
      });
}

/** Why a snapshot made there can't be restored here; undefined when it can. */
export function fingerprintDifference(made: HostFingerprint, here: HostFingerprint): string | undefined {
  const keys = [...new Set([...Object.keys(made), ...Object.keys(here)])].sort();
  const differing = keys.filter((key) => made[key] !== here[key]);
  if (differing.length === 0) return undefined;
  const parts = differing.map((key) => `${key} was ${made[key] ?? 'not set'}, is ${here[key] ?? 'not set'}`);
  return `the host changed: ${parts.join('; ')}`;
}

/** Reads every byte. @returns why the files are not those of the manifest; undefined when they are */
async function checksumProblem(
  version: LoadedVersion,
  host: Pick<SnapshotHost, 'checksums'>,
  signal: AbortSignal,
): Promise<string | undefined> {
  const found = await host.checksums(version.directory, { signal });
  const wrong = snapshotFiles.find((name) => found[name] !== version.manifest.files[name]?.sha256);
  return wrong === undefined ? undefined : `the checksum of ${wrong} is wrong`;
}

/** @throws GatewayError `snapshot_corrupt` naming the file */
export async function verifyChecksums(
  version: LoadedVersion,
  host: Pick<SnapshotHost, 'checksums'>,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const problem = await checksumProblem(version, host, signal);
  if (problem === undefined) return;
  throw new GatewayError(
    'snapshot_corrupt',
    `version ${shortDigest(version.digest)} can't be used: ${problem}`,
    {
      component: 'templates',
    },
  );
}

/** Whether a version can be restored here: manifest, files, fingerprint and, last because it reads everything, checksums. */
export async function inspectVersion(
  deps: {
    readonly host: Pick<SnapshotHost, 'fingerprint' | 'checksums'>;
    readonly versionsDirectory: string;
  },
  digest: VersionDigest,
  options: { readonly signal: AbortSignal },
): Promise<Inspection> {
  const inspection = await readVersion(deps.versionsDirectory, digest);
  if (inspection.state !== 'usable') return inspection;
  const { version } = inspection;
  const reason =
    fingerprintDifference(version.manifest.fingerprint, deps.host.fingerprint) ??
    (await checksumProblem(version, deps.host, options.signal));
  return reason === undefined ? inspection : { state: 'unusable', reason };
}
