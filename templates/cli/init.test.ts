import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { loadDefinition } from '../definition/index.ts';
import { packTemplate } from '../publish/index.ts';
import { initCommand, starterKinds } from './init.ts';
import { Terminal, temporaryFolder } from './testing/terminal.ts';

const signal = new AbortController().signal;

for (const kind of starterKinds) {
  test(`the ${kind} starter is a template that loads and packs, under the name of its folder`, async (context) => {
    const terminal = new Terminal(await temporaryFolder(context));
    await terminal.run(initCommand, [kind, 'my-thing']);
    const folder = join(terminal.workingDirectory, 'my-thing');
    const definition = await loadDefinition(folder, { signal });
    assert.equal(definition.name, 'my-thing');
    assert.ok((await buffer(await packTemplate(folder, definition))).length > 0);
    assert.match(terminal.stdout, /snapgate publish my-thing/);
  });
}

test('without a folder the kind gives the name', async (context) => {
  const terminal = new Terminal(await temporaryFolder(context));
  await terminal.run(initCommand, ['python']);
  assert.deepEqual((await readdir(join(terminal.workingDirectory, 'hello-python'))).sort(), [
    'app',
    'template.json',
  ]);
});

test('a folder that is not empty is left as it is', async (context) => {
  const terminal = new Terminal(await temporaryFolder(context));
  const folder = join(terminal.workingDirectory, 'full');
  await mkdir(folder);
  await writeFile(join(folder, 'precious.txt'), 'x');
  await assert.rejects(terminal.run(initCommand, ['node', 'full']), (error) =>
    isGatewayError(error, 'conflict'),
  );
  assert.deepEqual(await readdir(folder), ['precious.txt']);
});

test('a folder whose name is no template name asks for --name', async (context) => {
  const terminal = new Terminal(await temporaryFolder(context));
  await assert.rejects(terminal.run(initCommand, ['node', 'My Function']), (error) => {
    assert.ok(isGatewayError(error, 'invalid_request'));
    assert.equal(error.details.field, '--name');
    return true;
  });
  await terminal.run(initCommand, ['node', 'My Function', '--name', 'mine']);
  const folder = join(terminal.workingDirectory, 'My Function');
  assert.equal((await loadDefinition(folder, { signal })).name, 'mine');
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Starts a starter's service on this host and waits until its ready path answers. */
async function serve(context: TestContext, kind: 'node' | 'python', program: string): Promise<string> {
  const terminal = new Terminal(await temporaryFolder(context));
  await terminal.run(initCommand, [kind, 'tpl']);
  const main = join(terminal.workingDirectory, 'tpl/app', kind === 'node' ? 'main.mjs' : 'main.py');
  const port = await freePort();
  const child: ChildProcess = spawn(program, [main], { env: { PORT: String(port) }, stdio: 'ignore' });
  const closed = once(child, 'close');
  context.after(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const url = `http://127.0.0.1:${port}`;
  while (child.exitCode === null) {
    const isReady = await fetch(`${url}/healthz`).then(
      (response) => response.ok,
      () => false,
    );
    if (isReady) return url;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return assert.fail(`the service ended with ${child.exitCode}`);
}

const programs = { node: process.execPath, python: 'python3' } as const;
for (const kind of ['node', 'python'] as const) {
  const isMissing = spawnSync(programs[kind], ['--version']).status !== 0;
  test(`the ${kind} starter answers its ready path, requests and hook, and counts in memory`, {
    skip: isMissing,
  }, async (context) => {
    const url = await serve(context, kind, programs[kind]);
    const get = async (path: string) =>
      (await fetch(`${url}${path}`)).json() as Promise<Record<string, unknown>>;
    const first = await get('/?n=9');
    assert.equal(first.square, 81);
    assert.equal(first.requests, 1);
    assert.equal((await fetch(`${url}/_snapgate/restored`, { method: 'POST' })).status, 200);
    const second = await get('/?n=nonsense');
    assert.equal(second.square, null);
    assert.equal(second.requests, 2);
    assert.equal(second.loadedAt, first.loadedAt);
    assert.notEqual(second.id, first.id);
  });
}
