import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { isGatewayError, systemClock } from '../sdk/index.ts';
import { closed, listening, parseListen } from './listening.ts';

test('addresses and passed sockets are told apart, and what is neither is named', () => {
  assert.deepEqual(parseListen('127.0.0.1:7070'), { host: '127.0.0.1', port: 7070 });
  assert.deepEqual(parseListen('[::1]:0'), { host: '::1', port: 0 });
  assert.deepEqual(parseListen('fd:3'), { fd: 3 });
  for (const odd of ['7070', 'host', '::1:80', 'host:70000', 'fd:', 'fd:x']) {
    assert.throws(
      () => parseListen(odd),
      (error) => isGatewayError(error, 'invalid_request') && error.details.field === 'listen',
    );
  }
});

test('a server that closes still answers what comes on an idle connection, then ends it', async () => {
  let isClosing = false;
  const server = createServer((_request, response) => {
    if (isClosing) response.setHeader('connection', 'close');
    response.end('answer');
  });
  await listening(server, { host: '127.0.0.1', port: 0 });
  const { port } = server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ask = async () => {
    const [answer] = (await once(get({ port, agent }), 'response')) as [IncomingMessage];
    answer.resume();
    await once(answer, 'end');
    return answer.headers.connection;
  };
  assert.equal(await ask(), 'keep-alive');
  isClosing = true;
  const done = closed(server, { clock: systemClock, idleMs: 60_000 });
  await assert.rejects(once(get({ port, agent: false }), 'response'), /ECONNREFUSED/);
  assert.equal(await ask(), 'close');
  await done;
  agent.destroy();
});

test('idle connections that nobody uses end after their time', async () => {
  const server = createServer((_request, response) => response.end());
  await listening(server, { host: '127.0.0.1', port: 0 });
  const { port } = server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true });
  const [answer] = (await once(get({ port, agent }), 'response')) as [IncomingMessage];
  answer.resume();
  await once(answer, 'end');
  await closed(server, { clock: systemClock, idleMs: 20 });
  agent.destroy();
});
