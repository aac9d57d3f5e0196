import assert from 'node:assert/strict';
import { appendFile, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import { packTemplate } from './archive/pack.ts';
import { defaultArchiveLimits } from './archive/tree.ts';
import { createBuildLane } from './lane.ts';
import { buildVersion, rebuildVersion } from './pipeline.ts';
import { type FakeHostOptions, failurePoints } from './testing/fake-host.ts';
import { collect, digestOf, fullDefinition, resultOf, Workshop } from './testing/workshop.ts';
import { inspectVersion, loadVersion } from './versions.ts';

const never = new AbortController().signal;
const options = { signal: never };

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

for (const point of failurePoints) {
  test(`a failure at ${point} leaves no file and no machine behind`, async () => {
    await using workshop = await Workshop.open();
    const good = workshop.deps(workshop.host());
    await resultOf(buildVersion(good, await workshop.pack(), options));
    await workshop.write({ 'app/main.py': 'print(2)\n' });
    const before = await workshop.listing();
    const host = workshop.host({ fail: { [point]: new Error('it broke') } });
    await assert.rejects(
      collect(buildVersion(workshop.deps(host), await workshop.pack(), options)),
      (error) => isGatewayError(error, 'build_failed', 'internal'),
    );
    assert.deepEqual(await workshop.listing(), before);
    assert.equal(host.alive.size, 0);
  });
}

// Asking whether the service still runs writes nothing.
for (const point of failurePoints.filter((name) => name !== 'serviceExit')) {
  test(`a disk that is full at ${point} is reported as disk_full`, async () => {
    await using workshop = await Workshop.open();
    const error = Object.assign(new Error('write failed'), { code: 'ENOSPC' });
    const cause = new GatewayError('internal', 'could not write', { cause: error });
    const deps = workshop.deps(workshop.host({ fail: { [point]: cause } }));
    await assert.rejects(collect(buildVersion(deps, await workshop.pack(), options)), (failure) =>
      isGatewayError(failure, 'disk_full'),
    );
    assert.deepEqual(await workshop.listing(), []);
  });
}

async function failureOf(
  workshop: Workshop,
  hostOptions: FakeHostOptions,
  definition: unknown = fullDefinition,
) {
  const deps = workshop.deps(workshop.host(hostOptions));
  const failure = await collect(buildVersion(deps, await workshop.pack(definition), options)).then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.ok(isGatewayError(failure), `expected a GatewayError, got ${failure}`);
  return failure;
}

test("a service that crashes at start is reported at once with the service's own output", async () => {
  await using workshop = await Workshop.open();
  const error = await failureOf(workshop, {
    fail: { serviceExit: new Error('crash') },
    serviceOutput: 'SyntaxError: invalid syntax\u001b[31m',
  });
  assert.equal(error.code, 'build_failed');
  assert.match(error.message, /ended with exit code 1 before it was ready/);
  assert.equal(error.details.output, 'SyntaxError: invalid syntax\\e[31m');
});

test('a service whose program is not there is reported with program, user and folder', async () => {
  await using workshop = await Workshop.open();
  const missing = new GatewayError('file_not_found', 'No such file or directory');
  const error = await failureOf(workshop, { fail: { startService: missing } });
  assert.equal(error.code, 'build_failed');
  assert.equal(
    error.message,
    'the service could not be started: serve as user in /: No such file or directory',
  );
  assert.equal(error.details.output, undefined);
});

test('a service that printed nothing says so and shows the console', async () => {
  await using workshop = await Workshop.open();
  const error = await failureOf(workshop, { fail: { serviceExit: new Error('crash') } });
  assert.equal(
    error.details.output,
    'The service printed nothing. The console said:\nconsole: kernel says hello',
  );
});

test('a service that never gets ready says what its last answer was', async () => {
  await using workshop = await Workshop.open();
  const start = { ...fullDefinition.start, ready: { http: '/ready', timeoutMs: 150 } };
  const error = await failureOf(
    workshop,
    { answer: () => ({ status: 404, body: '' }), serviceOutput: 'listening' },
    { ...fullDefinition, start },
  );
  assert.equal(error.code, 'build_failed');
  assert.match(error.message, /not ready within 0.15 s: GET \/ready on port 8000: it answered 404/);
  assert.equal(error.details.output, 'listening');
});

test('a warm-up request that answers 500 fails the build and shows the answer', async () => {
  await using workshop = await Workshop.open();
  const answer = ({ path }: { path: string }) =>
    path === '/warm' ? { status: 500, body: 'Traceback: boom' } : { status: 200, body: '' };
  const error = await failureOf(workshop, { answer });
  assert.match(error.message, /warmup.0: GET \/warm answered 500/);
  assert.match(error.details.output ?? '', /Traceback: boom/);
});

test('a run step that fails shows what it printed', async () => {
  await using workshop = await Workshop.open();
  const error = await failureOf(workshop, { fail: { run: new Error('gcc: not found') } });
  assert.equal(error.message, 'run.0 ended with exit code 1: make things');
  assert.match(error.details.output ?? '', /gcc: not found/);
});

test('a machine that dies in the middle ends the build with its last words', async () => {
  await using workshop = await Workshop.open();
  const error = await failureOf(workshop, {
    onPoint: (point, machine) => {
      if (point !== 'run') return;
      machine?.die('kernel panic: out of ideas');
      return new Promise(() => {});
    },
  });
  assert.equal(error.code, 'build_failed');
  assert.equal(error.message, 'the machine ended while it was being built');
  assert.equal(error.details.output, 'kernel panic: out of ideas');
});

test('a snapshot that restores into a broken service is refused', async () => {
  await using workshop = await Workshop.open();
  const error = await failureOf(workshop, {
    answer: (_request, isRestored) => ({ status: isRestored ? 503 : 200, body: 'no connection' }),
  });
  assert.match(error.message, /verify: GET \/warm answered 503/);
  assert.deepEqual(await workshop.listing(), []);
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

test('a build that would not fit on the disk is refused before anything boots', async () => {
  await using workshop = await Workshop.open();
  const deps = workshop.deps(workshop.host(), { freeBytes: async () => 100 * 1024 * 1024 });
  await assert.rejects(collect(buildVersion(deps, await workshop.pack(), options)), (error) => {
    assert.ok(isGatewayError(error, 'disk_full'));
    assert.match(error.message, /100 MiB are free .* may need 384 MiB/);
    return true;
  });
  assert.ok(!deps.host.calls.includes('boot'));
  assert.deepEqual(await workshop.listing(), []);
});

test('a VMM that failed while the disk ran full is reported as a full disk', async () => {
  await using workshop = await Workshop.open();
  let free = 2 ** 40;
  const host = workshop.host({
    fail: { boot: new GatewayError('vmm_failed', 'the VMM got SIGBUS') },
    onPoint: (point) => {
      if (point === 'boot') free = 0;
    },
  });
  const deps = workshop.deps(host, { freeBytes: async () => free });
  await assert.rejects(collect(buildVersion(deps, await workshop.pack(), options)), (error) =>
    isGatewayError(error, 'disk_full'),
  );
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
