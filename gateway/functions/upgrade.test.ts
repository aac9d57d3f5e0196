import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { startHarness } from '../testing/harness.ts';
import { parseAnswer, rawConnect } from '../testing/raw-client.ts';

const upgradeTo = (path: string, ...headers: string[]) =>
  `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n${headers.map((line) => `${line}\r\n`).join('')}\r\n`;

/** A function that switches to a protocol which returns what it gets. */
function echoProtocol(
  h: { functionServer: import('node:http').Server },
  onSocket: (socket: Duplex) => void = () => {},
) {
  h.functionServer.on('upgrade', (_request, socket) => {
    socket.on('error', () => {});
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Own: 1\r\n\r\n',
    );
    socket.pipe(socket);
    onSocket(socket);
  });
}

test('a WebSocket works through the gateway, in both directions and both sizes of frames', async () => {
  await using h = await startHarness();
  const server = new WebSocketServer({ server: h.functionServer });
  server.on('connection', (socket, request) => {
    socket.send(`path ${request.url}`);
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
  const client = new WebSocket(`ws://127.0.0.1:${h.port}/fn/closed/chat?room=1`, {
    headers: { 'x-api-key': h.key },
  });
  const [first] = await once(client, 'message');
  assert.equal(String(first), 'path /chat?room=1');
  const big = Buffer.alloc(1024 * 1024, 'x');
  client.send(big);
  const [second] = await once(client, 'message');
  assert.deepEqual(second, big);
  const closed = once(client, 'close');
  client.close(4001, 'done');
  assert.equal((await closed)[0], 4001);
  const [line] = await h.finished();
  assert.equal(line?.['http.status'], 101);
  assert.equal(line?.['invocation.outcome'], 'answered');
  server.close();
});

test('the answer to an upgrade names version and machine, and keeps headers of the function', async () => {
  await using h = await startHarness();
  echoProtocol(h);
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open'));
  const answer = parseAnswer(await client.until(/\r\n\r\n/));
  assert.equal(answer.status, 101);
  assert.equal(answer.header('upgrade'), 'echo');
  assert.equal(answer.header('connection'), 'Upgrade');
  assert.equal(answer.header('x-own'), '1');
  assert.equal(answer.header('x-snapgate-version'), 'v1');
});

test('bytes sent together with the upgrade request reach the function first', async () => {
  await using h = await startHarness();
  echoProtocol(h);
  using client = await rawConnect(h.port);
  client.write(`${upgradeTo('/fn/open')}early `);
  await client.until(/\r\n\r\nearly /);
  client.write('late');
  await client.until(/\r\n\r\nearly late$/);
});

test('an upgrade that has been answered outlives the time limit of the call (knative/serving#16169)', async () => {
  await using h = await startHarness();
  echoProtocol(h);
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open', 'x-snapgate-timeout-ms: 50'));
  await client.until(/\r\n\r\n$/);
  await new Promise((resolve) => setTimeout(resolve, 80));
  client.write('still here');
  await client.until(/still here$/);
});

test('when the client leaves the function hears of it', async () => {
  await using h = await startHarness();
  const closed = Promise.withResolvers<void>();
  echoProtocol(h, (socket) => socket.on('close', () => closed.resolve()));
  const client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open'));
  await client.until(/\r\n\r\n$/);
  client.socket.destroy();
  await closed.promise;
  await h.finished();
});

test('when the function leaves, what it said last still arrives', async () => {
  await using h = await startHarness();
  h.functionServer.on('upgrade', (_request, socket) => {
    socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nbye');
  });
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open'));
  await client.until(/\r\n\r\nbye$/);
  assert.equal(await client.ended(), 'closed');
});

test('a function that refuses the upgrade answers like any other call', async () => {
  await using h = await startHarness({
    listener: (_request, response) => response.writeHead(426, { 'x-own': '1' }).end('no such protocol'),
  });
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open'));
  assert.equal(await client.ended(), 'closed');
  const answer = parseAnswer(client.received());
  assert.equal(answer.status, 426);
  assert.equal(answer.header('x-own'), '1');
  assert.equal(answer.header('connection'), 'close');
  assert.match(answer.rest.toString(), /no such protocol/);
});

test('a big refusal of an upgrade is not lost to back-pressure', async () => {
  const page = Buffer.alloc(8 * 1024 * 1024, 'x');
  await using h = await startHarness({
    listener: (_request, response) => response.writeHead(400, { 'content-length': page.length }).end(page),
  });
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open'));
  await client.ended();
  assert.equal(parseAnswer(client.received()).rest.length, page.length);
});

test('an upgrade without a key is refused with a problem document', async () => {
  await using h = await startHarness();
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/closed'));
  await client.ended();
  const answer = parseAnswer(client.received());
  assert.equal(answer.status, 401);
  assert.equal(answer.header('x-snapgate-error'), 'gateway/unauthenticated');
  assert.equal(JSON.parse(answer.rest.toString()).error_code, 'unauthenticated');
});

test('a client that leaves before the upgrade is answered aborts it', async () => {
  await using h = await startHarness();
  const asked = Promise.withResolvers<AbortSignal>();
  h.edge.behaviour.upgrade = (request) => {
    asked.resolve(request.signal);
    return new Promise(() => {});
  };
  const client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open'));
  const signal = await asked.promise;
  client.socket.end();
  if (!signal.aborted) await once(signal, 'abort');
});

test('an offer of h2c is ignored and the request answered (curl --http2, Java HttpClient)', async () => {
  await using h = await startHarness();
  using client = await rawConnect(h.port);
  const offer =
    'Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n';
  client.write(`GET /fn/open HTTP/1.1\r\nHost: a\r\n${offer}\r\n`);
  await client.ended();
  assert.equal(parseAnswer(client.received()).status, 200);
  const names = h.edge.invocations[0]?.rawHeaders.map((name) => name.toLowerCase()) ?? [];
  assert.ok(!names.includes('upgrade') && !names.includes('http2-settings'));
});

test('an upgrade beside the function routes is answered as a plain request', async () => {
  await using h = await startHarness();
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/healthz').replace('Connection: Upgrade', 'Connection: Upgrade, close'));
  await client.until(/"status":"ok"/);
});

test('disposing the gateway ends tunnels', async () => {
  const h = await startHarness();
  echoProtocol(h);
  using client = await rawConnect(h.port);
  client.write(upgradeTo('/fn/open'));
  await client.until(/\r\n\r\n$/);
  await h[Symbol.asyncDispose]();
  await client.ended();
});
