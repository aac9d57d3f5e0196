import assert from 'node:assert/strict';
import { mkdir, readdir, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isGatewayError, type VersionDigest } from '../../sdk/index.ts';
import { buildVersion } from './pipeline.ts';
import { digestOf, resultOf, Workshop } from './testing/workshop.ts';
import {
  listVersionDirectories,
  removeVersionFiles,
  sweepVersions,
  versionDirectory,
} from './version-directories.ts';
import { inspectVersion, loadVersion, verifyChecksums } from './versions.ts';

const options = { signal: new AbortController().signal };

async function built(workshop: Workshop) {
  const deps = workshop.deps(workshop.host());
  const digest = digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options)));
  return { deps, digest, directory: versionDirectory(deps.versionsDirectory, digest) };
}

test('a version that this host does not have is version_not_found', async () => {
  await using workshop = await Workshop.open();
  const digest = `sha256:${'0'.repeat(64)}` as VersionDigest;
  await assert.rejects(loadVersion(workshop.versionsDirectory, digest), (error) =>
    isGatewayError(error, 'version_not_found'),
  );
  assert.deepEqual(await inspectVersion(workshop.deps(workshop.host()), digest, options), {
    state: 'absent',
  });
});

const damages: Record<
  string,
  { harm: (directory: string, root: string) => Promise<unknown>; reason: RegExp }
> = {
  'a manifest that is missing': {
    harm: (directory) => rm(join(directory, 'manifest.json')),
    reason: /its manifest is missing/,
  },
  'a manifest that is cut': {
    harm: (directory) => truncate(join(directory, 'manifest.json'), 20),
    reason: /its manifest is not JSON/,
  },
  'a manifest of another release': {
    harm: (directory) => writeFile(join(directory, 'manifest.json'), '{"schema": 2}'),
    reason: /its manifest is not valid at schema/,
  },
  'a memory image that is cut': {
    harm: (directory) => truncate(join(directory, 'memory.img'), 1),
    reason: /memory.img has 1 bytes instead of 6/,
  },
  'a device state that is missing': {
    harm: (directory) => rm(join(directory, 'device.state')),
    reason: /device.state is missing/,
  },
  'a disk layer whose bytes changed': {
    harm: (directory) => writeFile(join(directory, 'disk.qcow2'), 'Disk'),
    reason: /the checksum of disk.qcow2 is wrong/,
  },
  'a root image that was removed': {
    harm: (_directory, root) => rm(join(root, 'images', 'root')),
    reason: /the image file .*root is missing/,
  },
};

for (const [what, { harm, reason }] of Object.entries(damages)) {
  test(`${what} makes the version unusable, with the reason`, async () => {
    await using workshop = await Workshop.open();
    const { deps, digest, directory } = await built(workshop);
    await harm(directory, workshop.root);
    const inspection = await inspectVersion(deps, digest, options);
    assert.ok(inspection.state === 'unusable');
    assert.match(inspection.reason, reason);
  });
}

test('a manifest of another version in its place is noticed', async () => {
  await using workshop = await Workshop.open();
  const { deps, directory } = await built(workshop);
  const other = `sha256:${'1'.repeat(64)}` as VersionDigest;
  await rename(directory, versionDirectory(deps.versionsDirectory, other));
  await assert.rejects(loadVersion(deps.versionsDirectory, other), (error) => {
    assert.ok(isGatewayError(error, 'snapshot_corrupt'));
    assert.match(error.message, /of another version/);
    return true;
  });
});

test('checksums that do not match are snapshot_corrupt, and those that do are silent', async () => {
  await using workshop = await Workshop.open();
  const { deps, digest } = await built(workshop);
  const version = await loadVersion(deps.versionsDirectory, digest);
  await verifyChecksums(version, deps.host, options);
  await writeFile(version.statePath, 'STATE');
  await assert.rejects(verifyChecksums(version, deps.host, options), (error) =>
    isGatewayError(error, 'snapshot_corrupt'),
  );
});

test('a start sweeps unfinished builds and removals and leaves versions alone', async () => {
  await using workshop = await Workshop.open();
  const { deps, digest } = await built(workshop);
  for (const name of ['.building-0123', '.removed-0123'])
    await mkdir(join(deps.versionsDirectory, name, 'x'), { recursive: true });
  assert.deepEqual((await sweepVersions(deps.versionsDirectory)).sort(), ['.building-0123', '.removed-0123']);
  assert.deepEqual(await readdir(deps.versionsDirectory), [digest.slice(7)]);
  assert.deepEqual(await listVersionDirectories(deps.versionsDirectory), [digest]);
  assert.deepEqual(await sweepVersions(deps.versionsDirectory), []);
});

test('a crash between the two renames of a replacement loses no version', async () => {
  await using workshop = await Workshop.open();
  const { deps, digest, directory } = await built(workshop);
  await rename(directory, join(deps.versionsDirectory, `.replaced-${digest.slice(7)}-0123`));
  await sweepVersions(deps.versionsDirectory);
  assert.equal((await inspectVersion(deps, digest, options)).state, 'usable');
});

test('a crash after both renames leaves only the new version', async () => {
  await using workshop = await Workshop.open();
  const { deps, digest } = await built(workshop);
  await mkdir(join(deps.versionsDirectory, `.replaced-${digest.slice(7)}-0123`));
  await sweepVersions(deps.versionsDirectory);
  assert.deepEqual(await readdir(deps.versionsDirectory), [digest.slice(7)]);
  assert.equal((await inspectVersion(deps, digest, options)).state, 'usable');
});

test('removing a version removes its files, and removing it again is fine', async () => {
  await using workshop = await Workshop.open();
  const { deps, digest } = await built(workshop);
  await removeVersionFiles(deps.versionsDirectory, digest);
  await removeVersionFiles(deps.versionsDirectory, digest);
  assert.deepEqual(await readdir(deps.versionsDirectory), []);
});
