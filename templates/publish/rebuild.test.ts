import assert from 'node:assert/strict';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { packTemplate } from './archive/pack.ts';
import { buildVersion, rebuildVersion } from './pipeline.ts';
import { collect, digestOf, resultOf, Workshop } from './testing/workshop.ts';
import { inspectVersion, loadVersion } from './versions.ts';

const options = { signal: new AbortController().signal };

test('a host that changed rebuilds a version from its archived source and keeps the digest', async () => {
  await using workshop = await Workshop.open();
  const old = workshop.deps(workshop.host());
  const digest = digestOf(await resultOf(buildVersion(old, await workshop.pack(), options)));
  const deps = workshop.deps(workshop.host({ fingerprint: { vmm: 'fake 2' } }));
  Object.assign(deps.host.image0, { initrdDigest: 'sha256:another agent' });
  const inspection = await inspectVersion(deps, digest, options);
  assert.ok(inspection.state === 'unusable');
  assert.equal(inspection.reason, 'the host changed: vmm was fake 1, is fake 2');
  const built = await resultOf(rebuildVersion(deps, digest, inspection.reason, options));
  assert.equal(built.facts.digest, digest);
  const after = await inspectVersion(deps, digest, options);
  assert.ok(after.state === 'usable');
  assert.equal(after.version.image.initrdDigest, 'sha256:another agent');
});

test('a rebuild that fails leaves the old files as they were', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host());
  const digest = digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options)));
  const before = await workshop.listing();
  const broken = workshop.deps(workshop.host({ fail: { verify: new Error('no') } }));
  await assert.rejects(collect(rebuildVersion(broken, digest, 'a test', options)));
  assert.deepEqual(await workshop.listing(), before);
  assert.equal((await inspectVersion(deps, digest, options)).state, 'usable');
});

test('a rebuild without a source, or from a damaged one, says so', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host());
  const digest = digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options)));
  const source = join(deps.versionsDirectory, digest.slice(7), 'source.tar.gz');
  const bytes = await readFile(source);
  await writeFile(source, bytes.subarray(0, bytes.length / 2));
  await assert.rejects(collect(rebuildVersion(deps, digest, 'a test', options)), (error) =>
    isGatewayError(error, 'snapshot_corrupt'),
  );
  await workshop.write({ 'app/main.py': 'print(3)\n' });
  await rm(source);
  const other = await packTemplate(
    workshop.folder,
    (await loadVersion(deps.versionsDirectory, digest)).definition,
  );
  await writeFile(source, other);
  await assert.rejects(collect(rebuildVersion(deps, digest, 'a test', options)), /is not what was published/);
  await rm(source);
  await assert.rejects(collect(rebuildVersion(deps, digest, 'a test', options)), (error) =>
    isGatewayError(error, 'version_not_found'),
  );
});
