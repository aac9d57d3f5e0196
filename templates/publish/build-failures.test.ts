import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import { buildVersion } from './pipeline.ts';
import { type FakeHostOptions, failurePoints } from './testing/fake-host.ts';
import { collect, fullDefinition, resultOf, Workshop } from './testing/workshop.ts';

const options = { signal: new AbortController().signal };

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
