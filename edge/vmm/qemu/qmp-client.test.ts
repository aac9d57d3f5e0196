import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { connectQmp, type QmpClient } from './qmp-client.ts';

const greeting = JSON.stringify({
  QMP: { version: { qemu: { major: 7, minor: 2, micro: 22 }, package: 'Debian' }, capabilities: ['oob'] },
});
const never = new AbortController().signal;

type Answer = (command: { execute: string; id: number; arguments?: unknown }, socket: Socket) => void;
const accept: Answer = ({ id }, socket) => socket.write(`${JSON.stringify({ return: {}, id })}\r\n`);

describe('the QMP client', () => {
  let directory = '';
  let server: Server;
  let sockets: Socket[] = [];
  let opening = `${greeting}\r\n`;
  let answers: Record<string, Answer> = {};

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-qmp-'));
    sockets = [];
    opening = `${greeting}\r\n`;
    answers = { qmp_capabilities: accept };
    server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      socket.write(opening);
      socket.on('data', (chunk) => {
        for (const line of chunk.toString().split('\n').filter(Boolean)) {
          const command = JSON.parse(line);
          answers[command.execute]?.(command, socket);
        }
      });
    });
    await new Promise<void>((done) => server.listen(join(directory, 's'), done));
  });
  afterEach(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((done) => server.close(done));
    await rm(directory, { recursive: true });
  });
  const open = () => connectQmp(join(directory, 's'), { signal: never, maxLineBytes: 4096 });
  const send = (text: string) => sockets[0]?.write(text);
  async function failsAll(client: QmpClient, text: string, kind: string) {
    const pending = [client.execute('stop', {}), client.execute('cont', {})].map((answer) =>
      assert.rejects(answer, { name: 'QmpError', kind }),
    );
    send(text);
    await Promise.all(pending);
    await client.closed;
    await assert.rejects(client.execute('stop', {}), { kind });
  }

  test('greets, negotiates, and tells the version', async () => {
    const client = await open();
    assert.equal(client.greeting.version.qemu.micro, 22);
    client.close();
    await client.closed;
  });

  test('matches answers by id, in whatever order they come', async () => {
    const held: (() => void)[] = [];
    answers['query-status'] = ({ id }, socket) =>
      held.unshift(() =>
        socket.write(
          `${JSON.stringify({ id, return: { status: id % 2 ? 'running' : 'paused', running: true } })}\n`,
        ),
      );
    const client = await open();
    const first = client.execute('query-status', {});
    const second = client.execute('query-status', {});
    while (held.length < 2) await new Promise(setImmediate);
    for (const answer of held) answer();
    assert.deepEqual([(await first).status, (await second).status], ['paused', 'running']);
    client.close();
  });

  test("passes a refusal on with QEMU's own words, and goes on working", async () => {
    answers.stop = ({ id }, socket) =>
      socket.write(`${JSON.stringify({ id, error: { class: 'GenericError', desc: 'no way' } })}\n`);
    answers.cont = accept;
    const client = await open();
    await assert.rejects(client.execute('stop', {}), { kind: 'refused', message: /no way/ });
    await client.execute('cont', {});
    client.close();
  });

  test('hands events to their listeners until they leave, and drops unknown ones', async () => {
    const client = await open();
    const seen: string[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = client.on('MIGRATION', ({ status }) => {
      seen.push(status);
      if (status === 'completed') {
        stop();
        resolve();
      }
    });
    const event = (name: string, data?: object) =>
      `${JSON.stringify({ timestamp: { seconds: 1, microseconds: 2 }, event: name, data })}\n`;
    send(event('RTC_CHANGE', { offset: 1 }) + event('MIGRATION', { status: 'active' }));
    send(event('MIGRATION', { status: 'completed' }));
    await promise;
    assert.deepEqual(seen, ['active', 'completed']);
    client.close();
  });

  for (const [what, text] of [
    ['no JSON', 'hello\n'],
    ['JSON of another form', '[1,2]\n'],
    ['an answer to nothing', '{"return":{},"id":99}\n'],
    ['an error without an id', '{"error":{"class":"GenericError","desc":"JSON parse error"}}\n'],
    ['an event of a wrong form', '{"event":"MIGRATION","data":{"status":"dancing"}}\n'],
    ['an endless line', 'x'.repeat(5000)],
  ] as const) {
    test(`ends the connection and all that waits when QEMU sends ${what}`, async () => {
      await failsAll(await open(), text, 'malformed');
    });
  }

  test('refuses an answer of a wrong form without ending the connection', async () => {
    answers['query-status'] = ({ id }, socket) =>
      socket.write(`${JSON.stringify({ id, return: { status: 'odd' } })}\n`);
    answers.cont = accept;
    const client = await open();
    await assert.rejects(client.execute('query-status', {}), { kind: 'malformed' });
    await client.execute('cont', {});
    client.close();
  });

  test('rejects all that waits when the socket dies', async () => {
    const client = await open();
    const waiting = assert.rejects(client.execute('stop', {}), { kind: 'disconnected' });
    sockets[0]?.destroy();
    await waiting;
    await client.closed;
  });

  test('gives up a command on abort and on its timeout, and ignores the late answer', async () => {
    let late = () => {};
    answers.stop = ({ id }, socket) => {
      late = () => socket.write(`${JSON.stringify({ id, return: {} })}\n`);
    };
    answers.cont = accept;
    const client = await open();
    await assert.rejects(client.execute('stop', {}, { timeoutMs: 10 }), { kind: 'timeout' });
    late();
    const controller = new AbortController();
    const aborted = client.execute('stop', {}, { signal: controller.signal });
    controller.abort(new Error('enough'));
    await assert.rejects(aborted, { message: 'enough' });
    late();
    await client.execute('cont', {});
    client.close();
  });

  test('bounds what waits', async () => {
    const client = await open();
    const waiting = Array.from({ length: 64 }, () =>
      assert.rejects(client.execute('stop', {}), { kind: 'disconnected' }),
    );
    await assert.rejects(client.execute('stop', {}), { kind: 'refused', message: /64/ });
    client.close();
    await Promise.all(waiting);
  });

  for (const [what, text] of [
    ['something else', 'SSH-2.0-OpenSSH\n'],
    ['a greeting without a version', '{"QMP":{}}\n'],
    ['an endless greeting', 'x'.repeat(5000)],
  ] as const) {
    test(`does not connect to ${what}`, async () => {
      opening = text;
      await assert.rejects(open());
    });
  }

  test('does not wait for a greeting for ever', async () => {
    opening = '';
    const controller = new AbortController();
    const connecting = connectQmp(join(directory, 's'), { signal: controller.signal });
    controller.abort(new Error('enough'));
    await assert.rejects(connecting, { message: 'enough' });
  });

  test('says that nobody listens as the system says it', async () => {
    await assert.rejects(connectQmp(join(directory, 'other'), { signal: never }), { code: 'ENOENT' });
  });
});
