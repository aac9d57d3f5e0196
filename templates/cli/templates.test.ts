import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isGatewayError, type TemplateDetail } from '../../sdk/index.ts';
import { templatesCommand } from './templates.ts';
import { FakeGateway, Terminal } from './testing/terminal.ts';

const facts = {
  digest: `sha256:${'ab'.repeat(32)}`,
  builtAt: 0,
  buildMs: 1,
  memoryBytes: 2 ** 20,
  stateBytes: 1,
  diskBytes: 1,
  accelerator: 'tcg',
  verifyRestoreMs: 45,
  verifyFirstResponseMs: null,
} as const;
const version = { digest: facts.digest, createdAt: 0, facts, definition: {} };
const detail: TemplateDetail = {
  name: 'hello',
  createdAt: 0,
  versions: 2,
  latest: 'v2',
  public: false,
  history: [
    { ...version, version: 'v2', aliases: ['canary', 'latest'] },
    { ...version, version: 'v1', aliases: ['canary'] },
  ],
  aliases: [
    {
      template: 'hello',
      alias: 'canary',
      targets: [
        { version: 'v1', weight: 9 },
        { version: 'v2', weight: 1 },
      ],
      updatedAt: 0,
    },
    { template: 'hello', alias: 'latest', targets: [{ version: 'v2', weight: 1 }], updatedAt: 0 },
  ],
};

async function run(words: readonly string[], gateway = new FakeGateway([], detail)) {
  const terminal = new Terminal('/');
  await terminal.run(templatesCommand, words, gateway);
  return { stdout: terminal.stdout, stderr: terminal.stderr, asked: gateway.asked };
}

test('list shows one line per template, and JSON on request', async () => {
  const { stdout } = await run(['list']);
  assert.deepEqual(stdout.split('\n'), [
    'NAME   LATEST  VERSIONS  CALLED BY   CREATED (UTC)',
    'hello  v2      2         with a key  1970-01-01 00:00:00',
    '',
  ]);
  assert.equal(JSON.parse((await run(['ls', '--json'])).stdout)[0].name, 'hello');
});

test('show lists versions and what aliases point to, with weights where there are several', async () => {
  const { stdout } = await run(['show', 'hello']);
  assert.match(stdout, /^v2 +sha256:abababababab +1970-01-01 00:00:00 +45 ms +1\.0 MiB +canary, latest$/m);
  assert.match(stdout, /^canary +v1=9 v2=1 +1970/m);
  assert.match(stdout, /^latest +v2 +1970/m);
  assert.deepEqual(JSON.parse((await run(['show', 'hello', '--json'])).stdout), detail);
});

test('alias set takes one version or several with weights', async () => {
  const { asked, stderr } = await run(['alias', 'set', 'hello', 'canary', 'v1=9', 'v2']);
  assert.deepEqual(asked, ['alias hello@canary [{"version":"v1","weight":9},{"version":"v2","weight":1}]']);
  assert.equal(stderr, 'hello@canary points to v1=9 v2.\n');
  for (const wrong of ['latest', 'v0', 'v1=0', 'v1=x']) {
    await assert.rejects(run(['alias', 'set', 'hello', 'live', wrong]), (error) =>
      isGatewayError(error, 'invalid_request'),
    );
  }
});

test('rm removes a version at once, a template only with --yes', async () => {
  assert.deepEqual((await run(['rm', 'hello@v1'])).asked, ['remove hello@v1']);
  assert.deepEqual((await run(['rm', 'hello', '--yes'])).asked, ['remove hello']);
  const gateway = new FakeGateway([], detail);
  await assert.rejects(run(['rm', 'hello'], gateway), /removes hello with 2 versions/);
  for (const wrong of ['@v1', 'hello@', 'a@b@c']) {
    await assert.rejects(run(['rm', wrong, '--yes'], gateway), (error) =>
      isGatewayError(error, 'invalid_request'),
    );
  }
  assert.deepEqual(gateway.asked, []);
});

test('schema needs no gateway', async () => {
  const terminal = new Terminal('/');
  await terminal.run(
    (deps) => templatesCommand({ ...deps, client: () => assert.fail('it was asked') }),
    ['schema'],
  );
  assert.equal(JSON.parse(terminal.stdout).additionalProperties, false);
});

test('text from a gateway can not steer the terminal', async () => {
  const { stdout } = await run(['list'], new FakeGateway([], { ...detail, name: 'a\u001b[31m\nb' }));
  assert.match(stdout, /^a\\e\[31m\\nb {2}v2/m);
});
