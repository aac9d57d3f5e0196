import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, it } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import type { CreatedSandbox, SandboxId } from '../../sdk/index.ts';
import { type SandboxHarness, startSandboxHarness } from '../testing/sandbox-harness.ts';

let h: SandboxHarness;
let sandbox: CreatedSandbox;
let base: string;
const hung: IncomingMessage[] = [];
const server = createServer(async (request, response) => {
  request.on('error', () => {});
  if (request.url === '/hang') return void hung.push(request);
  if (request.url === '/half') {
    response.write('half');
    hung.push(request);
    return;
  }
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.headers, body }));
});
const sockets = new WebSocketServer({ server });
sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(`echo ${data}`)));

before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  h = await startSandboxHarness({ port: (server.address() as AddressInfo).port });
  sandbox = await h.post('/v1/sandboxes', { template: 'open' });
  base = `${h.url}/v1/sandboxes/${sandbox.id}/ports/8080`;
});
after(async () => {
  await h[Symbol.asyncDispose]();
  sockets.close();
  server.closeAllConnections();
  server.close();
});

it('a port answers as it would without us: method, target and body untouched, our key kept from it', async () => {
  const answer = await fetch(`${base}/a%2Fb?x=%20y`, {
    method: 'POST',
    headers: { 'x-api-key': sandbox.token, authorization: 'Bearer its-own', 'x-mine': '1' },
    body: 'hello',
  });
  const seen = (await answer.json()) as { url: string; body: string; headers: Record<string, string> };
  assert.deepEqual([seen.url, seen.body], ['/a%2Fb?x=%20y', 'hello']);
  assert.equal(seen.headers.authorization, 'Bearer its-own');
  assert.equal(seen.headers['x-api-key'], undefined);
  assert.equal(seen.headers['x-forwarded-prefix'], `/v1/sandboxes/${sandbox.id}/ports/8080`);
  assert.equal(answer.headers.get('x-snapgate-machine'), sandbox.id);
  const streamed = await fetch(base, {
    method: 'PUT',
    headers: h.headers,
    body: new Blob(['one', 'two']).stream(),
    duplex: 'half',
  } as RequestInit);
  assert.equal(((await streamed.json()) as { body: string }).body, 'onetwo');
  assert.equal(h.sandboxes.uses, 0);
});

it('a port opens to a key or to the token of its own sandbox, and to nothing else', async () => {
  const other = await h.post<CreatedSandbox>('/v1/sandboxes', { template: 'open' });
  for (const [headers, status] of [
    [{}, 401],
    [{ authorization: `Bearer ${other.token}` }, 401],
    [{ authorization: `Bearer ${sandbox.token}` }, 200],
    [h.headers, 200],
  ] as const) {
    assert.equal((await fetch(base, { headers })).status, status);
  }
  const nobody = await fetch(base.replace(sandbox.id, 'a'.repeat(20)), { headers: h.headers });
  assert.equal(nobody.status, 404);
  const noPort = await fetch(base.replace('8080', '70000'), { headers: h.headers });
  assert.equal(noPort.status, 404);
});

it('a WebSocket goes through a port and holds the sandbox as long as it is open', async () => {
  const socket = new WebSocket(base.replace('http', 'ws'), { headers: h.headers });
  await once(socket, 'open');
  socket.send('hi');
  const [data] = await once(socket, 'message');
  assert.equal(String(data), 'echo hi');
  assert.equal(h.sandboxes.uses, 1);
  socket.close();
  await once(socket, 'close');
  await h.harness.finished();
  while (h.sandboxes.uses > 0) await new Promise((resolve) => setTimeout(resolve, 5));
});

it('who is put out before the answer began gets a 503 with Retry-After, who is after it a broken answer', async () => {
  const waiting = fetch(`${base}/hang`, { headers: h.headers });
  while (hung.length < 1) await new Promise((resolve) => setTimeout(resolve, 5));
  const half = await fetch(`${base}/half`, { headers: h.headers });
  h.sandboxes.evict(sandbox.id as SandboxId);
  const answer = await waiting;
  assert.equal(answer.status, 503);
  assert.equal(answer.headers.get('retry-after'), '1');
  await assert.rejects(half.text());
  assert.equal((await fetch(base, { headers: h.headers })).status, 200);
});

it('a client that leaves lets go of the sandbox, and the server hears of it', async () => {
  const stop = new AbortController();
  const before = hung.length;
  const waiting = fetch(`${base}/hang`, { headers: h.headers, signal: stop.signal });
  while (hung.length === before) await new Promise((resolve) => setTimeout(resolve, 5));
  // Its error is the news too, so `once` of node:events would not do.
  const gone = new Promise<void>((resolve) => void hung.at(-1)!.once('close', () => resolve()));
  stop.abort();
  await assert.rejects(waiting);
  await gone;
  while (h.sandboxes.uses > 0) await new Promise((resolve) => setTimeout(resolve, 5));
});

it('a port where nothing listens is a typed 502', async () => {
  await using alone = await startSandboxHarness({ port: 1 });
  const made = await alone.post<CreatedSandbox>('/v1/sandboxes', { template: 'open' });
  const answer = await fetch(`${alone.url}/v1/sandboxes/${made.id}/ports/8080/`, { headers: alone.headers });
  assert.equal(answer.status, 502);
  assert.equal(answer.headers.get('x-snapgate-error'), 'guest/function_port_closed');
});
