/** The command line against the real gateway (over an edge without machines): both sides of the wire must agree. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { GatewayError } from '../../sdk/index.ts';
import { type Harness, newFacts, startHarness } from '../testing/harness.ts';
import { run, type Setting, temporaryDirectory } from './testing/terminal.ts';

/** `snapgate …words` with address and key of the harness. */
const at =
  (context: TestContext, { url, key }: Harness) =>
  (words: readonly string[], setting: Setting = {}) =>
    run(context, words, { ...setting, env: { SNAPGATE_URL: url, SNAPGATE_API_KEY: key } });

async function templateFolder(context: TestContext): Promise<string> {
  const folder = await temporaryDirectory(context);
  await mkdir(join(folder, 'app'));
  await writeFile(join(folder, 'app/main.py'), 'print(1)');
  await writeFile(
    join(folder, 'template.json'),
    '{"name": "fresh", "copy": [{"from": "app", "to": "/app"}]}',
  );
  return folder;
}

test('invoke reaches a function and tells how its machine started', async (context) => {
  await using harness = await startHarness({
    listener: (request, response) =>
      void text(request).then((body) => response.end(`${request.url} ${body}`)),
  });
  const snapgate = at(context, harness);
  const { code, stdout, stderr } = await snapgate(['invoke', 'closed', '/a%2Fb?c', '-i', '-d', 'hi']);
  assert.deepEqual({ code, stdout }, { code: 0, stdout: '/a%2Fb?c hi' });
  assert.match(stderr, /start: reused {3}machine: stub0000000000000000 {3}version: v1\nqueue: 0 ms/);
  await harness.finished();
});

test('what the gateway refuses is reported with its code and exit code', async (context) => {
  await using harness = await startHarness();
  const snapgate = at(context, harness);
  const missing = await snapgate(['invoke', 'nope']);
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /^error\[template_not_found\]: .*nope/);
  assert.match((await snapgate(['invoke', 'closed@v9'])).stderr, /^error\[version_not_found\]/);
  assert.match((await snapgate(['templates', 'show', 'nope'])).stderr, /^error\[template_not_found\]/);
  const stranger = await run(context, ['ps', '--url', harness.url, '--api-key', `e2b_${'0'.repeat(40)}`]);
  assert.equal(stranger.code, 4);
  assert.match(stranger.stderr, /^error\[unauthenticated\]/);
});

test('templates are listed, shown, pointed to and removed', async (context) => {
  await using harness = await startHarness();
  const snapgate = at(context, harness);
  assert.match((await snapgate(['templates', 'list'])).stdout, /^closed +v1 +1 +with a key/m);
  assert.match((await snapgate(['templates', 'show', 'open'])).stdout, /^v1 +sha256:[0-9a-f]{12}/m);
  const set = await snapgate(['templates', 'alias', 'set', 'open', 'canary', 'v1=3', '--json']);
  assert.deepEqual(JSON.parse(set.stdout).targets, [{ version: 'v1', weight: 3 }]);
  assert.equal((await snapgate(['templates', 'rm', 'open', '--yes'])).code, 0);
  assert.deepEqual(
    harness.registry.templates().map(({ name }) => name),
    ['closed'],
  );
  assert.equal(harness.edge.removed.length, 1);
});

test('publish sends a folder that the gateway records and serves', async (context) => {
  await using harness = await startHarness();
  const facts = newFacts();
  let received = 0;
  harness.edge.behaviour.build = async function* (archive) {
    yield { type: 'task', id: 'boot', title: 'Boot a machine', state: 'started' };
    for await (const chunk of archive) received += chunk.length;
    yield { type: 'task', id: 'boot', title: 'Boot a machine', state: 'done', ms: 4000 };
    yield {
      type: 'built',
      template: 'fresh' as never,
      definition: { name: 'fresh' },
      unchanged: false,
      facts,
    };
  };
  const { code, stdout, stderr } = await at(context, harness)(['publish'], {
    workingDirectory: await templateFolder(context),
  });
  assert.equal(code, 0, stderr);
  assert.ok(received > 0);
  assert.match(stderr, /✔ Boot a machine \(4\.0 s\)/);
  assert.match(stdout, /^fresh@v1 is published/);
  assert.equal(harness.registry.template('fresh')?.latest, 'v1');
});

test('a build that fails shows what the guest printed, and changes nothing', async (context) => {
  await using harness = await startHarness();
  harness.edge.behaviour.build = async function* () {
    yield { type: 'task', id: 'start', title: 'Start the service', state: 'started' };
    throw new GatewayError('build_failed', 'it ended with exit code 1 before it was ready', {
      component: 'templates',
      output: 'SyntaxError: invalid syntax',
    });
  };
  const { code, stdout, stderr } = await at(context, harness)(['publish'], {
    workingDirectory: await templateFolder(context),
  });
  assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
  assert.match(stderr, /error\[build_failed\]: it ended with exit code 1/);
  assert.match(stderr, /^ {2}\| SyntaxError: invalid syntax$/m);
  assert.equal(harness.registry.template('fresh'), null);
});

test('keys are made, listed and withdrawn', async (context) => {
  await using harness = await startHarness();
  const snapgate = at(context, harness);
  const made = (await snapgate(['keys', 'create', 'ci'])).stdout.trim();
  assert.match(made, /^e2b_[0-9a-f]{40}$/);
  assert.equal((await run(context, ['ps', '--url', harness.url, '--api-key', made])).code, 0);
  const keys = JSON.parse((await snapgate(['keys', 'list', '--json'])).stdout) as {
    id: string;
    name: string;
  }[];
  const id = keys.find(({ name }) => name === 'ci')?.id ?? '';
  assert.equal((await snapgate(['keys', 'rm', id])).code, 0);
  assert.equal((await run(context, ['ps', '--url', harness.url, '--api-key', made])).code, 4);
  assert.match((await snapgate(['keys', 'rm', id])).stderr, /^error\[key_not_found\]/);
});

test('nodes, pools, machines and logs fit what the client expects', async (context) => {
  await using harness = await startHarness();
  const { registry, edge } = harness;
  const seen: unknown[] = [];
  edge.behaviour.logs = async function* ({ digests, streams, tail, follow, machine }) {
    seen.push({ versions: digests.length, streams, tail, follow, machine });
    yield { at: 0, machine: 'stub0000000000000000', stream: 'stderr', text: 'oops\u001b[2J' };
  };
  edge.machineList = [
    {
      id: 'stub0000000000000000',
      node: 'stub',
      template: 'open',
      version: 'v1',
      digest: registry.template('open')?.history[0]?.digest ?? '',
      state: 'serving',
      startedAt: 0,
      invocations: 1,
      inFlight: 1,
      pid: 1,
      privateBytes: null,
    },
  ];
  const snapgate = at(context, harness);
  assert.match((await snapgate(['ps'])).stdout, /^stub0000000000000000 +open@v1 +serving/m);
  assert.match((await snapgate(['ps', '--nodes'])).stdout, /not a tenant boundary/);
  assert.match((await snapgate(['ps', '--pools'])).stdout, /^POOL/);
  const { stdout } = await snapgate(['logs', 'open', '-n', '7', '--machine', 'stub0000000000000000']);
  assert.equal(stdout, '00:00:00.000 000000 stderr | oops\\e[2J\n');
  await snapgate(['logs', 'open@latest', '--console']);
  const machine = 'stub0000000000000000';
  assert.deepEqual(seen, [
    { versions: 1, streams: ['stdout', 'stderr'], tail: 7, follow: false, machine },
    { versions: 1, streams: ['console'], tail: 100, follow: false, machine: undefined },
  ]);
  assert.match((await snapgate(['logs', 'nope'])).stderr, /^error\[template_not_found\]/);
});
