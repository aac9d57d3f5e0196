/** A gateway and an edge in processes of their own, joined by HTTP: what a caller sees must not tell. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { createHttpEdgeClient } from '../edge/client/http-client.ts';
import { createEdgeServer } from '../edge/client/http-server.ts';
import { type SandboxId, Snapgate } from '../sdk/index.ts';
import { type Harness, type HarnessOptions, publish, startHarness } from './testing/harness.ts';
import { createMemorySandboxes } from './testing/memory-sandboxes.ts';
import { parseAnswer, rawConnect, rawExchange } from './testing/raw-client.ts';
import { createStubEdge } from './testing/stub-edge.ts';

/** A gateway whose sandboxes, in memory, are behind a real connection. */
async function startSandboxesApart() {
  const sandboxes = createMemorySandboxes();
  const server = createEdgeServer({ ...createStubEdge(), sandboxes });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
  const client = createHttpEdgeClient({ address });
  const harness = await startHarness({ sandboxes: client.sandboxes });
  return {
    sandboxes,
    snapgate: new Snapgate({ url: harness.url, apiKey: harness.key }),
    async [Symbol.asyncDispose]() {
      await harness[Symbol.asyncDispose]();
      client[Symbol.dispose]();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      while (sandboxes.uses > 0) await new Promise((resolve) => setImmediate(resolve));
      await sandboxes[Symbol.asyncDispose]();
    },
  };
}

/** The usual harness, with a real connection between gateway and stub. */
async function startApart(options: HarnessOptions = {}): Promise<Harness & { readonly edgeServer: Server }> {
  let edgeServer: Server | undefined;
  const harness = await startHarness({
    ...options,
    async reachEdge(edge) {
      const server = createEdgeServer(edge);
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      const client = createHttpEdgeClient({ address: { host: '127.0.0.1', port } });
      edgeServer = server;
      return {
        client,
        async [Symbol.asyncDispose]() {
          client[Symbol.dispose]();
          server.closeAllConnections();
          if (server.listening) await new Promise((resolve) => server.close(resolve));
        },
      };
    },
  });
  return Object.assign(harness, { edgeServer: edgeServer as Server });
}

const get = 'GET /fn/open/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';

test('a call and its answer cross with headers, trailers and all', async () => {
  await using h = await startApart({
    listener: (request, response) => {
      response.writeHead(201, { 'Set-Cookie': ['a=1', 'b=2'], Trailer: 'x-sum' });
      response.write(`${request.method} ${request.url}`);
      response.addTrailers({ 'x-sum': '1' });
      response.end();
    },
  });
  const answer = await rawExchange(h.port, get);
  assert.equal(answer.status, 201);
  assert.deepEqual(
    answer.headers.filter(([name]) => name === 'Set-Cookie').map(([, value]) => value),
    ['a=1', 'b=2'],
  );
  assert.match(answer.rest.toString(), /GET \/x\r\n0\r\nx-sum: 1\r\n\r\n$/);
});

test('chunks pass one by one, and a client that leaves ends the function', async () => {
  let next = () => {};
  const gone = Promise.withResolvers<void>();
  await using h = await startApart({
    listener: (_request, response) => {
      let count = 0;
      next = () => void response.write(`event ${++count}\n`);
      response.on('close', () => gone.resolve());
      next();
    },
  });
  const client = await rawConnect(h.port);
  client.write(get);
  await client.until(/event 1/);
  next();
  await client.until(/event 2/);
  client.socket.destroy();
  await gone.promise;
});

test('a body over the limit is told while it is being sent', async () => {
  await using h = await startApart({ listener: (request) => void request.resume() });
  publish(h.registry, 'small', { public: true, limits: { bodyBytes: 100_000 } });
  using client = await rawConnect(h.port);
  client.write('POST /fn/small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
  for (let sent = 0; sent < 20; sent++) client.write(`10000\r\n${'x'.repeat(0x10000)}\r\n`);
  await client.until(/"error_code":"body_too_large"/);
  assert.equal(parseAnswer(client.received()).status, 413);
});

test('an early answer reaches a client that is still uploading, and both connections go on', async () => {
  await using h = await startApart({
    listener: (_request, response) => response.writeHead(403).end('not today'),
  });
  using client = await rawConnect(h.port);
  client.write('POST /fn/open HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n');
  client.write(Buffer.alloc(4_000_000));
  await client.until(/not today/);
  client.write(get);
  await client.until(/not today[\s\S]*not today/);
});

test('a WebSocket crosses', async () => {
  await using h = await startApart();
  const server = new WebSocketServer({ server: h.functionServer });
  server.on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
  const client = new WebSocket(`ws://127.0.0.1:${h.port}/fn/open`);
  await once(client, 'open');
  const sent = Buffer.alloc(300_000, 'x');
  client.send(sent);
  assert.deepEqual((await once(client, 'message'))[0], sent);
  const closed = once(client, 'close');
  client.close(4001);
  assert.equal((await closed)[0], 4001);
  server.close();
});

test('an edge that dies is told as lost to who may have run and as unreachable to who can not have', async () => {
  await using h = await startApart({ listener: () => {} });
  const waiting = fetch(`${h.url}/fn/open`);
  await once(h.functionServer, 'request');
  h.edgeServer.close();
  h.edgeServer.closeAllConnections();
  const lost = await waiting;
  assert.deepEqual([lost.status, lost.headers.get('x-snapgate-error')], [500, 'edge/edge_lost']);
  const refused = await fetch(`${h.url}/fn/open`);
  assert.deepEqual([refused.status, refused.headers.get('x-snapgate-error')], [503, 'edge/edge_unreachable']);
  assert.equal((await fetch(`${h.url}/healthz`)).status, 200);
});

test('sandboxes apart do what they do in one process', async () => {
  const server = createServer((request, response) => request.pipe(response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  await using h = await startSandboxesApart();
  const { port } = server.address() as AddressInfo;
  {
    await using sandbox = await h.snapgate.sandboxes.create({ template: 'open', env: { A: '1' } });
    const id = sandbox.id as SandboxId;
    const directory = await h.sandboxes.directoryOf(id);
    const ran = await sandbox.run('cat; echo "$A"; exit 3', { stdin: 'in ' });
    assert.deepEqual([ran.stdout, ran.exitCode], ['in 1\n', 3]);
    await sandbox.files.write(`${directory}/x`, 'content');
    assert.equal(await sandbox.files.readText(`${directory}/x`), 'content');
    assert.equal(await (await sandbox.port(port).fetch('/', { body: 'echoed' })).text(), 'echoed');
    // A reader goes on across a cut, and holds nothing meanwhile.
    const slow = await sandbox.start('echo one; read line; echo two');
    const reading = slow.stdout();
    assert.equal(new TextDecoder().decode((await reading.next()).value), 'one\n');
    await h.sandboxes.cut(id);
    await slow.write('x\n');
    assert.equal(new TextDecoder().decode((await reading.next()).value), 'two\n');
    await slow.wait();
    const { children } = await sandbox.fork({ count: 2 });
    for (const child of children) await child.kill();
    const types: string[] = [];
    for await (const { type } of h.snapgate.sandboxes.events({ sandbox: id })) types.push(type);
    assert.deepEqual(types, ['created']);
    await sandbox.pause();
    await assert.rejects(sandbox.run('true'), { code: 'conflict' });
    await sandbox.resume();
  }
  server.closeAllConnections();
  server.close();
});
