import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fakeGateway } from './testing/terminal.ts';

const main = fileURLToPath(new URL('main.ts', import.meta.url));

function snapgate(context: TestContext, words: string[], env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [main, ...words], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  context.after(() => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
  });
  return child;
}

test('the program prints its help and ends with 0', async (context) => {
  const child = snapgate(context, ['--help']);
  const [stdout, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  assert.equal(code, 0);
  assert.match(stdout, /^Usage: snapgate/);
});

test('a pipe that closes early ends the program with 0 and no noise', async (context) => {
  const line = `${JSON.stringify({ at: 0, machine: 'm', stream: 'stdout', text: 'x'.repeat(50_000) })}\n`;
  const { env } = await fakeGateway(context, {
    'GET /v1/logs?template=hello&stream=stdout&stream=stderr&tail=100': (response: ServerResponse) => {
      for (let i = 0; i < 100; i++) response.write(line);
      response.end();
    },
  });
  const child = snapgate(context, ['logs', 'hello'], env);
  const closed = once(child, 'close');
  const stderr = text(child.stderr);
  await once(child.stdout, 'data');
  child.stdout.destroy();
  assert.deepEqual([(await closed)[0], await stderr], [0, '']);
});

test('SIGINT ends a command that waits with 130', async (context) => {
  const { env } = await fakeGateway(context, {
    'GET /v1/logs?template=hello&stream=stdout&stream=stderr&tail=100&follow=true': (
      response: ServerResponse,
    ) => response.write(`${JSON.stringify({ at: 0, machine: 'm', stream: 'stdout', text: 'x' })}\n`),
  });
  const child = snapgate(context, ['logs', 'hello', '--follow'], env);
  const closed = once(child, 'close');
  await once(child.stdout, 'data');
  child.kill('SIGINT');
  assert.deepEqual(await closed, [130, null]);
});
