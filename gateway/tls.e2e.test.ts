import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:https';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { edgeCertificate, edgeKey, testCa } from '../edge/client/http-test-certificates.ts';
import { startHarness } from './testing/harness.ts';

const client = { ca: testCa, servername: 'edge.test' };

test('a gateway listens in TLS too, and functions are told so', async () => {
  await using h = await startHarness({
    listener: (incoming, response) => response.end(JSON.stringify(incoming.headers)),
  });
  const tls = { cert: edgeCertificate, key: edgeKey };
  const { port } = await h.gateway.listen({ host: '127.0.0.1', port: 0, tls });
  const outgoing = request({ ...client, host: '127.0.0.1', port, path: '/fn/open', agent: false }).end();
  const [response] = await once(outgoing, 'response');
  const headers = JSON.parse(await text(response));
  assert.equal(headers['x-forwarded-proto'], 'https');
  assert.equal(headers['x-forwarded-port'], String(port));

  const sockets = new WebSocketServer({ server: h.functionServer });
  sockets.on('connection', (socket) => socket.send('hello'));
  const socket = new WebSocket(`wss://127.0.0.1:${port}/fn/open`, client);
  assert.equal(String((await once(socket, 'message'))[0]), 'hello');
  const closed = once(socket, 'close');
  socket.close();
  await closed;
  sockets.close();
});
