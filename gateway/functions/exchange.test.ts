import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { errorCodes, GatewayError } from '../../sdk/index.ts';
import { publish, startHarness } from '../testing/harness.ts';
import { parseAnswer, rawConnect, rawExchange } from '../testing/raw-client.ts';
import { fixedAnswer, stubMeta } from '../testing/stub-edge.ts';
import type { RequestBody } from './request-body.ts';

const readAll: RequestListener = (request, response) => {
  let size = 0;
  request.on('data', (chunk) => {
    size += chunk.length;
  });
  request.on('end', () => response.end(String(size)));
};

const post = (path: string, ...headers: string[]) =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\n${headers.map((line) => `${line}\r\n`).join('')}\r\n`;

/** One chunk of chunked coding. */
const chunk = (data: Buffer) =>
  Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);

test('a body over the announced limit is refused with a readable 413 that names the limit (azure#10519, nuclio#1696)', async () => {
  await using h = await startHarness({ listener: readAll });
  publish(h.registry, 'small', { public: true, limits: { bodyBytes: 1000 } });
  using client = await rawConnect(h.port);
  client.write(post('/fn/small', 'Content-Length: 10000000'));
  client.write(Buffer.alloc(10_000_000));
  await client.until(/"error_code":"body_too_large".*\n$/);
  const answer = parseAnswer(client.received());
  assert.equal(answer.status, 413);
  assert.equal(answer.header('x-snapgate-error'), 'gateway/body_too_large');
  assert.equal(answer.header('connection'), 'close');
  assert.equal(JSON.parse(answer.rest.toString()).limitBytes, 1000);
  assert.equal(await client.ended(), 'closed');
  assert.equal(h.edge.invocations.length, 0);
});

test('a chunked body that grows over the limit gets its 413 while it is still being sent (honojs/node-server#327)', async () => {
  await using h = await startHarness({ listener: readAll });
  publish(h.registry, 'small', { public: true, limits: { bodyBytes: 100_000 } });
  using client = await rawConnect(h.port);
  client.write(post('/fn/small', 'Transfer-Encoding: chunked'));
  const piece = chunk(Buffer.alloc(64 * 1024));
  for (let sent = 0; sent < 64; sent++) client.write(piece);
  client.write('0\r\n\r\n');
  await client.until(/"error_code":"body_too_large".*\n$/);
  assert.equal(parseAnswer(client.received()).status, 413);
  assert.equal(await client.ended(), 'closed');
  const [line] = await h.finished();
  assert.equal(line?.['invocation.outcome'], 'failed');
});

test('an early answer is read by a client that is still uploading, and the connection goes on', async () => {
  await using h = await startHarness({
    listener: (_request, response) => response.writeHead(403).end('not today'),
  });
  using client = await rawConnect(h.port);
  const size = 4_000_000;
  client.write(post('/fn/open', `Content-Length: ${size}`));
  client.write(Buffer.alloc(size));
  await client.until(/not today/);
  client.write('GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  await client.until(/"status":"ok"/);
});

test('a client that disconnects in mid-upload leaves a gateway that answers the next (workers-sdk#15203)', async () => {
  const aborted = Promise.withResolvers<void>();
  await using h = await startHarness({
    listener: (request, response) => {
      if (request.method !== 'POST') response.end('alive');
      request.on('error', () => aborted.resolve()).resume();
    },
  });
  const client = await rawConnect(h.port);
  client.write(post('/fn/open', 'Content-Length: 1000'));
  client.write('part');
  await once(h.functionServer, 'request');
  client.socket.destroy();
  await aborted.promise;
  assert.equal(await (await fetch(`${h.url}/fn/open`)).text(), 'alive');
  const lines = await h.finished(2);
  assert.deepEqual(
    lines.map((line) => [line['invocation.outcome'], line['error.code'], line.level]),
    [
      ['cancelled', 'cancelled', 30],
      ['answered', undefined, 30],
    ],
  );
});

test('a client that leaves while it waits aborts the function (honojs/node-server#107)', async () => {
  const gone = Promise.withResolvers<void>();
  await using h = await startHarness({ listener: (request) => request.on('close', () => gone.resolve()) });
  const client = await rawConnect(h.port);
  client.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n\r\n');
  await once(h.functionServer, 'request');
  client.socket.destroy();
  await gone.promise;
  assert.equal(h.edge.invocations[0]?.signal.aborted, true);
});

test('a client that leaves in mid-answer ends the function', async () => {
  const gone = Promise.withResolvers<void>();
  await using h = await startHarness({
    listener: (_request, response) => {
      response.on('close', () => gone.resolve());
      response.write('first');
    },
  });
  const client = await rawConnect(h.port);
  client.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n\r\n');
  await client.until(/first/);
  client.socket.destroy();
  await gone.promise;
});

test('every pipelined request is aborted when its connection goes, also those whose turn had not come', async () => {
  await using h = await startHarness({ listener: () => {} });
  const client = await rawConnect(h.port);
  client.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(3));
  while (h.edge.invocations.length < 3) await once(h.functionServer, 'request');
  client.socket.destroy();
  const lines = await h.finished(3);
  assert.deepEqual(
    lines.map((line) => line['invocation.outcome']),
    ['cancelled', 'cancelled', 'cancelled'],
  );
});

test('pipelined answers come in the order of their requests', async () => {
  const held = new Map<string, () => void>();
  const all = Promise.withResolvers<void>();
  await using h = await startHarness({
    listener: (request, response) => {
      held.set(request.url ?? '', () => response.end(`answer ${request.url}\n`));
      if (held.size === 3) all.resolve();
    },
  });
  using client = await rawConnect(h.port);
  client.write(['/1', '/2', '/3'].map((path) => `GET /fn/open${path} HTTP/1.1\r\nHost: a\r\n\r\n`).join(''));
  await all.promise;
  for (const path of ['/3', '/1', '/2']) held.get(path)?.();
  const text = await client.until(/answer \/3/);
  assert.deepEqual(text.match(/answer \/[0-9]/g), ['answer /1', 'answer /2', 'answer /3']);
});

test('a guest that dies in mid-answer never looks like a whole answer, whatever the framing', async () => {
  await using h = await startHarness();
  const half = (headers: string[]) => async () => ({
    status: 200,
    rawHeaders: headers,
    body: Readable.from(
      (async function* () {
        yield Buffer.from('half');
        throw new GatewayError('guest_unreachable', 'the machine is gone', { component: 'guest' });
      })(),
      { objectMode: false },
    ),
    trailers: () => [],
    meta: stubMeta(h.edge.declared[0]![0]!.digest),
  });
  h.edge.behaviour.invoke = half([]);
  using chunked = await rawConnect(h.port);
  chunked.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n\r\n');
  await chunked.ended();
  assert.match(chunked.received(), /half\r\n$/);

  using old = await rawConnect(h.port);
  old.write('GET /fn/open HTTP/1.0\r\n\r\n');
  assert.equal(await old.ended(), 'reset');

  h.edge.behaviour.invoke = half(['Content-Length', '8']);
  await assert.rejects(fetch(`${h.url}/fn/open`).then((response) => response.text()));
  const lines = await h.finished(3);
  assert.ok(
    lines.every((line) => line['invocation.outcome'] === 'cut' && line['error.code'] === 'guest_unreachable'),
  );
});

test('an answer shorter or longer than it promised is broken off', async () => {
  await using h = await startHarness();
  for (const promised of [3, 9]) {
    h.edge.behaviour.invoke = async (request) => ({
      ...fixedAnswer(request, Buffer.from('sixsix')),
      rawHeaders: ['Content-Length', String(promised)],
    });
    await assert.rejects(fetch(`${h.url}/fn/open`).then((response) => response.text()));
  }
});

test('a function answer which HTTP does not allow becomes a 502, not a crash', async () => {
  await using h = await startHarness();
  for (const bad of [
    { status: 99 },
    { status: 101 },
    { rawHeaders: ['bad name', '1'] },
    { rawHeaders: ['x', 'a\r\nevil: 1'] },
  ]) {
    h.edge.behaviour.invoke = async (request) => ({ ...fixedAnswer(request, Buffer.alloc(0)), ...bad });
    const response = await fetch(`${h.url}/fn/open`);
    assert.equal(response.status, 502);
    assert.equal(response.headers.get('x-snapgate-error'), 'gateway/function_crashed');
  }
});

test('a function that is too slow is answered 504 with a body, and the effective limit was obeyed (openfaas/faas#94, faas-netes#729)', async () => {
  await using h = await startHarness({ listener: () => {} });
  const response = await fetch(`${h.url}/fn/open`, { headers: { 'x-snapgate-timeout-ms': '20' } });
  assert.equal(response.status, 504);
  assert.equal(((await response.json()) as { error_code: string }).error_code, 'function_timeout');
  assert.equal(h.edge.invocations[0]?.timeoutMs, 20);
});

test("a caller can shorten the template's time limit, not lengthen it", async () => {
  await using h = await startHarness();
  publish(h.registry, 'quick', { public: true, ttl: { invocationMs: 50 } });
  await fetch(`${h.url}/fn/quick`, { headers: { 'x-snapgate-timeout-ms': '60000' } });
  assert.equal(h.edge.invocations[0]?.timeoutMs, 50);
  for (const bad of ['0', '-1', '1.5', 'x', '99999999999']) {
    const response = await fetch(`${h.url}/fn/quick`, { headers: { 'x-snapgate-timeout-ms': bad } });
    assert.equal(response.status, 400, bad);
  }
});

test('an edge that never answers is given up', async () => {
  await using h = await startHarness({ gateway: { timeouts: { edgeGraceMs: 0 } } });
  h.edge.behaviour.invoke = () => new Promise(() => {});
  const response = await fetch(`${h.url}/fn/open`, { headers: { 'x-snapgate-timeout-ms': '1' } });
  assert.equal(response.headers.get('x-snapgate-error'), 'gateway/edge_lost');
});

test('an answer that comes after the client left is thrown away', async () => {
  await using h = await startHarness();
  const called = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<void>();
  const body = Readable.from([Buffer.from('late')]);
  h.edge.behaviour.invoke = async (request) => {
    called.resolve();
    await answer.promise;
    return { ...fixedAnswer(request, Buffer.alloc(0)), body };
  };
  const client = await rawConnect(h.port);
  client.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n\r\n');
  await called.promise;
  client.socket.destroy();
  await h.finished();
  const closed = once(body, 'close');
  answer.resolve();
  await closed;
});

test("every edge error keeps its status, code and component, and can't be taken for the function's (faas-provider#61)", async () => {
  await using h = await startHarness();
  for (const code of Object.keys(errorCodes) as (keyof typeof errorCodes)[]) {
    h.edge.behaviour.invoke = async () => {
      throw new GatewayError(code, 'told by the edge', { component: 'pool', retryAfterSeconds: 2.1 });
    };
    const response = await fetch(`${h.url}/fn/open`);
    const { status } = errorCodes[code];
    assert.equal(response.status, status);
    assert.equal(response.headers.get('x-snapgate-error'), `pool/${code}`);
    assert.equal(response.headers.get('content-type'), 'application/problem+json');
    const problem = (await response.json()) as Record<string, unknown>;
    assert.equal(problem.template, 'open');
    assert.equal(problem.code, status);
    assert.equal(response.headers.get('retry-after'), status === 429 || status === 503 ? '3' : null);
    // A kept-alive connection must not stick to an answer that tells "down" (ilbertt/nibrun#300).
    assert.equal(response.headers.get('connection'), status >= 500 ? 'close' : 'keep-alive', code);
  }
});

test('what nobody foresaw is a 500 whose cause stays in the log', async () => {
  await using h = await startHarness();
  h.edge.behaviour.invoke = async () => {
    throw new TypeError('secret path /var/lib');
  };
  const response = await fetch(`${h.url}/fn/open`);
  assert.equal(response.status, 500);
  assert.doesNotMatch(await response.text(), /secret/);
  const [line] = await h.finished();
  assert.match(JSON.stringify(line), /secret path/);
  assert.equal(line?.level, 50);
});

test('more unfinished invocations than the limit are refused at once (knative/serving#602)', async () => {
  const held: (() => void)[] = [];
  await using h = await startHarness({
    listener: (_request, response) => held.push(() => response.end('late')),
    gateway: { limits: { inFlight: 2 } },
  });
  const waiting = [fetch(`${h.url}/fn/open`), fetch(`${h.url}/fn/open`)];
  while (held.length < 2) await once(h.functionServer, 'request');
  const refused = await fetch(`${h.url}/fn/open`);
  assert.equal(refused.status, 503);
  assert.equal(refused.headers.get('x-snapgate-error'), 'gateway/node_at_capacity');
  for (const release of held) release();
  assert.deepEqual(await Promise.all(waiting.map(async (answer) => (await answer).text())), ['late', 'late']);
});

test('an upload reads no more from the client than the edge takes', async () => {
  await using h = await startHarness();
  publish(h.registry, 'big', { public: true, limits: { bodyBytes: 2 ** 30 } });
  const taken = Promise.withResolvers<RequestBody>();
  h.edge.behaviour.invoke = async (request) => {
    request.body?.once('readable', () => {
      request.body?.read();
      taken.resolve(request.body as RequestBody);
    });
    return new Promise(() => {});
  };
  using client = await rawConnect(h.port);
  client.write(post('/fn/big', `Content-Length: ${2 ** 30}`));
  for (let sent = 0; sent < 64; sent++) client.socket.write(Buffer.alloc(1024 * 1024));
  const body = await taken.promise;
  // Time in which a gateway that reads ahead would read ahead; one that does not is not disturbed by it.
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.ok(body.receivedBytes < 1024 * 1024, `${body.receivedBytes} bytes were read ahead`);
});

test('an answer is read from the edge no faster than the client takes it', async () => {
  await using h = await startHarness();
  let madeBytes = 0;
  const body = new Readable({
    read() {
      madeBytes += 64 * 1024;
      this.push(Buffer.alloc(64 * 1024));
    },
  });
  h.edge.behaviour.invoke = async (request) => ({
    ...fixedAnswer(request, Buffer.alloc(0)),
    rawHeaders: [],
    body,
  });
  using client = await rawConnect(h.port);
  client.socket.pause();
  client.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n\r\n');
  // Time in which a gateway without back-pressure would hold a gigabyte; the kernel's buffers hold some megabytes.
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.ok(madeBytes > 0 && madeBytes < 64 * 1024 * 1024, `${madeBytes} bytes were made`);
});

test('a body that stalls is ended with 408', async () => {
  await using h = await startHarness({ listener: readAll, gateway: { timeouts: { uploadIdleMs: 100 } } });
  using client = await rawConnect(h.port);
  client.write(post('/fn/open', 'Content-Length: 100'));
  client.write('some');
  await client.until(/"error_code":"request_timeout"/);
  assert.equal(parseAnswer(client.received()).status, 408);
});

test('once the answer has begun, the client may pause its upload for longer', async () => {
  await using h = await startHarness({
    listener: (request, response) => {
      response.write('begun ');
      request.on('data', (data) => response.write(data)).on('end', () => response.end());
    },
    gateway: { timeouts: { uploadIdleMs: 100 } },
  });
  using client = await rawConnect(h.port);
  client.write(post('/fn/open', 'Transfer-Encoding: chunked'));
  client.write('1\r\na\r\n');
  await client.until(/begun/);
  await new Promise((resolve) => setTimeout(resolve, 200));
  client.write('4\r\nlate\r\n0\r\n\r\n');
  await client.until(/late[\s\S]*0\r\n\r\n$/);
});

test('query strings and credentials do not reach the log', async () => {
  await using h = await startHarness();
  await fetch(`${h.url}/fn/closed/x?token=topsecret`, {
    headers: { authorization: `Bearer ${h.key}`, cookie: 'c=1' },
  });
  await h.finished();
  const text = JSON.stringify(h.lines);
  assert.doesNotMatch(text, /topsecret/);
  assert.ok(!text.includes(h.key) && !text.includes('c=1'));
});

test('a HTTP/1.0 client gets its answer up to the end of the connection', async () => {
  await using h = await startHarness({
    listener: (_request, response) => {
      response.write('a');
      response.end('b');
    },
  });
  const answer = await rawExchange(h.port, 'GET /fn/open HTTP/1.0\r\n\r\n');
  assert.equal(answer.rest.toString(), 'ab');
  assert.equal(answer.header('transfer-encoding'), undefined);
});
