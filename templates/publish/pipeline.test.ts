import assert from 'node:assert/strict';
import { appendFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { defaultArchiveLimits } from './archive/tree.ts';
import { createBuildLane } from './lane.ts';
import { buildVersion } from './pipeline.ts';
import { collect, digestOf, fullDefinition, resultOf, Workshop } from './testing/workshop.ts';
import { inspectVersion, loadVersion } from './versions.ts';

const options = { signal: new AbortController().signal };

test('a template passes every step in order and becomes a version directory', async () => {
  await using workshop = await Workshop.open();
  const host = workshop.host();
  const deps = workshop.deps(host);
  const events = await collect(buildVersion(deps, await workshop.pack(), options));
  const finished = events.flatMap((event) =>
    event.type === 'task' && event.state === 'done' ? [event.id] : [],
  );
  assert.deepEqual(finished, [
    'unpack',
    'image',
    'compare',
    'boot',
    'copy',
    'run.0',
    'start',
    'ready',
    'warmup',
    'hook',
    'capture',
    'checksum',
    'verify',
  ]);
  const built = events.at(-1);
  assert.ok(built?.type === 'built');
  assert.equal(built.unchanged, false);
  assert.equal(built.facts.verifyRestoreMs, 12);
  assert.ok(built.facts.verifyFirstResponseMs !== null);
  const version = await loadVersion(deps.versionsDirectory, digestOf(built));
  assert.equal(version.definition.start?.port, 8000);
  assert.deepEqual(version.image, host.image0);
  assert.deepEqual((await readdir(version.directory)).sort(), [
    'device.state',
    'disk.qcow2',
    'manifest.json',
    'memory.img',
    'source.tar.gz',
  ]);
  assert.deepEqual(await readdir(deps.versionsDirectory), [digestOf(built).slice(7)]);
  assert.deepEqual(
    host.calls.filter((call) => call.startsWith('http')),
    ['GET /ready', 'GET /warm', 'GET /warm', 'POST /hook', 'GET /warm'].map((call) => `http 8000 ${call}`),
  );
  assert.equal(host.alive.size, 0);
});

test('a template without a service is captured after its run steps and verified by a command', async () => {
  await using workshop = await Workshop.open();
  const host = workshop.host();
  const built = await resultOf(
    buildVersion(workshop.deps(host), await workshop.pack({ name: 'base' }), options),
  );
  assert.equal(built.facts.verifyFirstResponseMs, null);
  assert.ok(host.calls.includes('run /bin/true'));
});

test('the same input is not built again, whatever order its definition is written in', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host());
  const first = await resultOf(buildVersion(deps, await workshop.pack(), options));
  const reordered = Object.fromEntries(Object.entries(fullDefinition).reverse());
  const second = await resultOf(buildVersion(deps, await workshop.pack(reordered), options));
  assert.equal(second.unchanged, true);
  assert.deepEqual(second.facts, first.facts);
  assert.equal(deps.host.calls.filter((call) => call === 'boot').length, 1);
});

test('a changed file, a changed definition and a changed image each give another digest', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host());
  const digests = new Set([digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options)))]);
  const greeting = { ...fullDefinition, env: { GREETING: 'good day' } };
  digests.add(digestOf(await resultOf(buildVersion(deps, await workshop.pack(greeting), options))));
  await workshop.write({ 'app/main.py': 'print(2)\n' });
  digests.add(digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options))));
  Object.assign(deps.host.image0, { initrdDigest: 'sha256:another agent' });
  digests.add(digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options))));
  assert.equal(digests.size, 4);
});

test('a version whose memory was damaged is found, said so, and built again under the same digest', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host());
  const digest = digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options)));
  const { memoryPath } = await loadVersion(deps.versionsDirectory, digest);
  await writeFile(memoryPath, 'Memory');
  const inspection = await inspectVersion(deps, digest, options);
  assert.deepEqual(inspection, { state: 'unusable', reason: 'the checksum of memory.img is wrong' });
  const events = await collect(buildVersion(deps, await workshop.pack(), options));
  const said = events.flatMap((event) => (event.type === 'output' ? [event.text] : [])).join('');
  assert.match(said, /built again: the checksum of memory.img is wrong/);
  assert.equal((await inspectVersion(deps, digest, options)).state, 'usable');
  assert.deepEqual(await readdir(deps.versionsDirectory), [digest.slice(7)]);
});

test('two uploads of the same template at the same time build it once', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host(), { lane: createBuildLane({ concurrency: 4 }) });
  const archives = [await workshop.pack(), await workshop.pack(), await workshop.pack()];
  const results = await Promise.all(
    archives.map((archive) => resultOf(buildVersion(deps, archive, options))),
  );
  assert.deepEqual(results.map(({ unchanged }) => unchanged).sort(), [false, true, true]);
  assert.equal(deps.host.calls.filter((call) => call === 'boot').length, 1);
});

test('a build waits for its turn visibly, and too many waiting builds are refused', async () => {
  await using workshop = await Workshop.open();
  const gate = Promise.withResolvers<void>();
  const deps = workshop.deps(
    workshop.host({ onPoint: (point) => (point === 'boot' ? gate.promise : undefined) }),
    { lane: createBuildLane({ maxWaiting: 1 }) },
  );
  const first = collect(buildVersion(deps, await workshop.pack(), options));
  const waiting = buildVersion(deps, await workshop.pack(), options)[Symbol.asyncIterator]();
  const seen: string[] = [];
  while (!seen.includes('wait started')) {
    const { value } = await waiting.next();
    if (value?.type === 'task') seen.push(`${value.id} ${value.state}`);
  }
  await assert.rejects(collect(buildVersion(deps, await workshop.pack(), options)), (error) =>
    isGatewayError(error, 'node_at_capacity'),
  );
  gate.resolve();
  await first;
  let last: unknown;
  for (let next = await waiting.next(); !next.done; next = await waiting.next()) last = next.value;
  assert.equal((last as { unchanged?: boolean }).unchanged, true);
});

test('a caller who goes away ends the build, and a cancelled one says cancelled', async () => {
  await using workshop = await Workshop.open();
  const cancel = new AbortController();
  const host = workshop.host({ onPoint: (point) => (point === 'run' ? cancel.abort() : undefined) });
  await assert.rejects(
    collect(buildVersion(workshop.deps(host), await workshop.pack(), { signal: cancel.signal })),
    (error) => isGatewayError(error, 'cancelled'),
  );
  assert.equal(host.alive.size, 0);
  const left = workshop.host();
  for await (const event of buildVersion(workshop.deps(left), await workshop.pack(), options)) {
    if (event.type === 'task' && event.id === 'boot' && event.state === 'done') break;
  }
  assert.equal(left.alive.size, 0);
  assert.deepEqual(await workshop.listing(), []);
});

test('an upload that breaks off, is no archive or has no definition is the caller’s mistake', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host());
  const broken = new Readable({ read() {} });
  broken.push('half');
  setImmediate(() => broken.destroy());
  for (const archive of [broken, Readable.from([Buffer.from('not a tar')]), Readable.from([])]) {
    await assert.rejects(collect(buildVersion(deps, archive, options)), (error) =>
      isGatewayError(error, 'invalid_request'),
    );
  }
  assert.deepEqual(await workshop.listing(), []);
});

test('an upload that is too large is refused without cutting its connection', async () => {
  await using workshop = await Workshop.open();
  const limits = { ...defaultArchiveLimits, archiveBytes: 1000 };
  const deps = workshop.deps(workshop.host(), { limits });
  const archive = Readable.from(Array.from({ length: 100 }, () => Buffer.alloc(100)));
  await assert.rejects(
    collect(buildVersion(deps, archive, options)),
    /the packed template is larger than 1000 bytes/,
  );
  assert.equal(archive.destroyed, false);
  archive.destroy();
});

test('output of the guest is escaped, bounded and attributed to its task', async () => {
  await using workshop = await Workshop.open();
  const host = workshop.host({ fail: { run: new Error(`\u001b[2J${'x'.repeat(3_000_000)}`) } });
  const seen: { id: string; text: string }[] = [];
  await assert.rejects(async () => {
    for await (const event of buildVersion(workshop.deps(host), await workshop.pack(), options)) {
      if (event.type === 'output') seen.push(event);
    }
  });
  const total = seen.reduce((sum, { text }) => sum + text.length, 0);
  assert.ok(total < 1_100_000, `forwarded ${total}`);
  assert.ok(seen.some(({ id, text }) => id === 'run.0' && text.startsWith('\\e[2J')));
  assert.match(seen.at(-1)?.text ?? '', /not shown/);
});

test('files made by an earlier crash do not disturb a later build', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host());
  const digest = digestOf(await resultOf(buildVersion(deps, await workshop.pack(), options)));
  await appendFile(join(deps.versionsDirectory, digest.slice(7), 'manifest.json'), 'garbage');
  const built = await resultOf(buildVersion(deps, await workshop.pack(), options));
  assert.equal(built.unchanged, false);
  assert.equal((await inspectVersion(deps, digest, options)).state, 'usable');
});
