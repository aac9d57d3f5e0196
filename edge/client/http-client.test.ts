import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, createServer as createSocketServer } from 'node:net';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { GatewayError, type MachineId, type VersionDigest } from '../../sdk/index.ts';
import { createHttpEdgeClient } from './http-client.ts';
import { createEdgeServer } from './http-server.ts';
import {
  edgeCertificate,
  edgeKey,
  gatewayCertificate,
  gatewayKey,
  testCa,
} from './http-test-certificates.ts';
import type { EdgeClient, InvokeRequest } from './port.ts';

const digest = `sha256:${'0'.repeat(64)}` as VersionDigest;
const request = (): InvokeRequest => ({
  requestId: 'r',
  digest,
  method: 'GET',
  target: '/',
  rawHeaders: [],
  body: null,
  timeoutMs: 1000,
  signal: new AbortController().signal,
});

async function listen(server: Server | ReturnType<typeof createSocketServer>): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'none';
  } catch (error) {
    assert.ok(error instanceof GatewayError, String(error));
    return error.code;
  }
}

/** Every kind of call. */
const calls = (client: EdgeClient): Record<string, () => Promise<unknown>> => ({
  node: () => client.node(),
  invoke: () => client.invoke(request()),
  upgrade: () => client.upgrade(request()),
  setServing: () => client.setServing([]),
  removeVersion: () => client.removeVersion(digest),
  build: () =>
    client
      .build(new PassThrough().end('x'), { signal: new AbortController().signal })
      [Symbol.asyncIterator]()
      .next(),
  logs: () =>
    client
      .logs({ digests: [], streams: [], tail: 0, follow: false, signal: new AbortController().signal })
      [Symbol.asyncIterator]()
      .next(),
});

test('an edge that is not there is unreachable: nothing can have run', async () => {
  const server = createSocketServer();
  const port = await listen(server);
  server.close();
  await once(server, 'close');
  using client = createHttpEdgeClient({ address: { host: '127.0.0.1', port } });
  for (const [name, call] of Object.entries(calls(client))) {
    assert.equal(await codeOf(call()), 'edge_unreachable', name);
  }
});

test('an edge that goes away in the middle is lost: something may have run', async () => {
  const server = createSocketServer((socket) =>
    socket.once('data', () => socket.destroy()).on('error', () => {}),
  );
  const port = await listen(server);
  using client = createHttpEdgeClient({ address: { host: '127.0.0.1', port } });
  for (const [name, call] of Object.entries(calls(client))) {
    assert.equal(await codeOf(call()), 'edge_lost', name);
  }
  server.close();
});

test('what is no edge is told apart from an edge', async () => {
  const server = createServer((_request, response) => response.end('hello'));
  const port = await listen(server);
  using client = createHttpEdgeClient({ address: { host: '127.0.0.1', port } });
  for (const [name, call] of Object.entries(calls(client))) {
    assert.equal(await codeOf(call()), 'internal', name);
  }
  server.closeAllConnections();
  server.close();
});

test('an edge that does not accept is given up after the time for dialling', async () => {
  // A listener whose backlog is full neither accepts nor refuses; TLS that never answers is the same to a client.
  const server = createSocketServer(() => {});
  const port = await listen(server);
  const tls = { ca: testCa };
  using client = createHttpEdgeClient({ address: { host: '127.0.0.1', port, tls }, connectTimeoutMs: 50 });
  assert.equal(await codeOf(client.node()), 'edge_unreachable');
  server.close();
});

test('a question is asked again when the edge had closed the kept connection just before', async () => {
  let connections = 0;
  let questions = 0;
  const answer = JSON.stringify([]);
  const server = createSocketServer((socket) => {
    connections += 1;
    let isFirst = true;
    socket
      .on('error', () => {})
      .on('data', () => {
        questions += 1;
        // The second question on a connection meets a reset.
        if (!isFirst) return socket.resetAndDestroy();
        isFirst = false;
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${answer.length}\r\n\r\n${answer}`);
      });
  });
  const port = await listen(server);
  using client = createHttpEdgeClient({ address: { host: '127.0.0.1', port } });
  for (let asked = 0; asked < 3; asked++) {
    assert.deepEqual(await client.machines(), []);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.deepEqual([questions, connections], [5, 3]);
  server.close();
});

test('with mutual TLS only a gateway with a certificate is heard, and only by an edge with one', async () => {
  const meta = {
    machine: 'node0000000000000000' as MachineId,
    digest,
    start: 'ready',
    timing: { queueMs: 0, restoreMs: 0, execMs: 0 },
  } as const;
  const edge = {
    invoke: async () => ({
      status: 200,
      rawHeaders: [],
      body: new PassThrough().end('secret'),
      trailers: () => [],
      meta,
    }),
  } as unknown as EdgeClient;
  const server = createEdgeServer(edge, {
    ca: testCa,
    cert: edgeCertificate,
    key: edgeKey,
    requestCert: true,
    rejectUnauthorized: true,
  });
  const port = await listen(server);
  const address = { host: '127.0.0.1', port };
  const own = { cert: gatewayCertificate, key: gatewayKey };
  const invokeWith = async (tls: object) => {
    using client = createHttpEdgeClient({ address: { ...address, tls } });
    const answer = await client.invoke(request());
    return await text(answer.body);
  };
  assert.equal(await invokeWith({ ca: testCa, servername: 'edge.test', ...own }), 'secret');
  await assert.rejects(invokeWith({ ca: testCa, servername: 'edge.test' }), GatewayError);
  await assert.rejects(invokeWith({ ca: testCa, servername: 'other.test', ...own }), GatewayError);
  await assert.rejects(invokeWith({ servername: 'edge.test', ...own }), GatewayError);
  server.closeAllConnections();
  server.close();
});

test('an edge answers nothing but its own routes', async () => {
  const server = createEdgeServer({} as EdgeClient);
  const port = await listen(server);
  const status = async (method: string, path: string, body?: string) =>
    (await fetch(`http://127.0.0.1:${port}${path}`, { method, ...(body === undefined ? {} : { body }) }))
      .status;
  assert.equal(await status('GET', '/'), 404);
  assert.equal(await status('DELETE', '/edge/v1/versions/..%2F..'), 404);
  assert.equal(await status('PUT', '/edge/v1/serving', '{'), 400);
  assert.equal(await status('PUT', '/edge/v1/serving', '{"versions":[{"digest":"x"}]}'), 400);
  server.closeAllConnections();
  server.close();
});
