import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import type { RequestListener } from 'node:http';
import { test } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import { publish, startHarness } from '../testing/harness.ts';
import { rawConnect, rawExchange } from '../testing/raw-client.ts';
import { fixedAnswer } from '../testing/stub-edge.ts';

/** Tells what it got: method, target, raw headers, size and hash of the body. */
const echo: RequestListener = (request, response) => {
  const hash = createHash('sha256');
  let size = 0;
  request.on('data', (chunk) => {
    hash.update(chunk);
    size += chunk.length;
  });
  request.on('end', () => {
    const { method, url, rawHeaders } = request;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ method, url, rawHeaders, size, hash: hash.digest('hex') }));
  });
};

interface Echo {
  method: string;
  url: string;
  rawHeaders: string[];
  size: number;
  hash: string;
}

const valuesOf = (echo: Echo, name: string) =>
  echo.rawHeaders.filter((_, at) => at % 2 === 1 && echo.rawHeaders[at - 1]!.toLowerCase() === name);

const get = (path: string, ...headers: string[]) =>
  `GET ${path} HTTP/1.1\r\nHost: api.test:7070\r\nConnection: close\r\n${headers.map((line) => `${line}\r\n`).join('')}\r\n`;

const bodyOf = (text: string) => text.slice(text.indexOf('\r\n\r\n') + 4);

test('the target reaches the function byte for byte, dot segments and broken escapes too', async () => {
  await using h = await startHarness({ listener: echo });
  for (const suffix of ['/a%2Fb', '//a//b', '/%zz', '/x/../../v1/keys', '/a?b=%20+&b', '/a;b?c?d']) {
    const answer = await rawExchange(h.port, get(`/fn/open${suffix}`));
    assert.equal((JSON.parse(answer.rest.toString()) as Echo).url, suffix);
  }
});

test('an absolute-form target is served and its authority counts as the host', async () => {
  await using h = await startHarness({ listener: echo });
  const answer = await rawExchange(h.port, get('http://other.test/fn/open/x?y'));
  const seen = JSON.parse(answer.rest.toString()) as Echo;
  assert.equal(seen.url, '/x?y');
  assert.deepEqual(valuesOf(seen, 'host'), ['other.test']);
});

test('a template answers at its own host', async () => {
  await using h = await startHarness({ listener: echo, gateway: { domain: 'snap.test' } });
  const request = get('/fn/closed/x').replace('api.test:7070', 'open.fn.snap.test:7070');
  const byHost = await rawExchange(h.port, request.replace('/fn/closed/x', '/a?b'));
  assert.equal((JSON.parse(byHost.rest.toString()) as Echo).url, '/a?b');
});

test("the function sees the client's Host and the real peer (openfaas/of-watchdog#22, openfaas/faas#749)", async () => {
  await using h = await startHarness({ listener: echo });
  const answer = await rawExchange(h.port, get('/fn/open/', 'X-Forwarded-For: 6.6.6.6'));
  const seen = JSON.parse(answer.rest.toString()) as Echo;
  assert.deepEqual(valuesOf(seen, 'host'), ['api.test:7070']);
  assert.deepEqual(valuesOf(seen, 'x-forwarded-for'), ['127.0.0.1']);
  assert.deepEqual(valuesOf(seen, 'x-forwarded-port'), ['7070']);
});

test('a proxy on the trusted list may say who the client is', async () => {
  await using h = await startHarness({ listener: echo, gateway: { trustedProxies: ['127.0.0.0/8'] } });
  const answer = await rawExchange(
    h.port,
    get('/fn/open/', 'X-Forwarded-For: 1.2.3.4', 'X-Forwarded-Proto: https'),
  );
  const seen = JSON.parse(answer.rest.toString()) as Echo;
  assert.deepEqual(valuesOf(seen, 'x-forwarded-for'), ['1.2.3.4, 127.0.0.1']);
  assert.deepEqual(valuesOf(seen, 'x-forwarded-proto'), ['https']);
});

test('three Set-Cookie go out as three headers in their order (jeremydaly/lambda-api#184)', async () => {
  await using h = await startHarness({
    listener: (_request, response) => response.writeHead(200, { 'Set-Cookie': ['a=1', 'b=2', 'c=3'] }).end(),
  });
  const answer = await rawExchange(h.port, get('/fn/open'));
  const cookies = answer.headers.filter(([name]) => name === 'Set-Cookie').map(([, value]) => value);
  assert.deepEqual(cookies, ['a=1', 'b=2', 'c=3']);
});

test('a compressed answer arrives as it was sent, its length with it (fine-grained-proxy#18)', async () => {
  const page = gzipSync(randomBytes(30_000).toString('hex'));
  await using h = await startHarness({
    listener: (_request, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': page.length }).end(page);
    },
  });
  const answer = await rawExchange(h.port, get('/fn/open', 'Accept-Encoding: gzip'));
  assert.equal(answer.header('content-length'), String(page.length));
  assert.equal(answer.header('content-encoding'), 'gzip');
  assert.deepEqual(answer.rest, page);
  assert.equal(gunzipSync(answer.rest).length, 60_000);
});

test('a JSON body arrives byte-identical (apache/openwhisk#3920)', async () => {
  await using h = await startHarness({ listener: echo });
  const body = '{"a": 1,\n "b":"\\u00e9"}  ';
  const response = await fetch(`${h.url}/fn/open`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json' },
  });
  const seen = (await response.json()) as Echo;
  assert.equal(seen.hash, createHash('sha256').update(body).digest('hex'));
  assert.deepEqual(valuesOf(seen, 'content-length'), [String(body.length)]);
});

test('HEAD carries the headers of GET and no body (honojs/node-server#220)', async () => {
  await using h = await startHarness({
    listener: (request, response) => {
      response.writeHead(200, { 'content-length': 5, etag: '"x"' });
      response.end(request.method === 'HEAD' ? undefined : 'hello');
    },
  });
  const answer = await rawExchange(h.port, get('/fn/open').replace('GET', 'HEAD'));
  assert.equal(answer.status, 200);
  assert.equal(answer.header('content-length'), '5');
  assert.equal(answer.header('etag'), '"x"');
  assert.equal(answer.rest.length, 0);
});

test('204 and 304 go through without a body and leave the connection usable', async () => {
  await using h = await startHarness();
  using client = await rawConnect(h.port);
  for (const status of [204, 304]) {
    // A Trailer header where no trailer can follow makes Node throw.
    h.edge.behaviour.invoke = async (request) => ({
      ...fixedAnswer(request, Buffer.alloc(0)),
      status,
      rawHeaders: ['ETag', '"x"', 'Trailer', 'x-sum'],
    });
    client.write(get('/fn/open').replace('Connection: close\r\n', ''));
    await client.until(new RegExp(`HTTP/1.1 ${status} [\\s\\S]*ETag: "x"\r\n[\\s\\S]*\r\n\r\n$`));
  }
});

test('GET, DELETE and OPTIONS keep their bodies, with a length or in chunks', async () => {
  await using h = await startHarness({ listener: echo });
  for (const method of ['GET', 'DELETE', 'OPTIONS', 'PROPFIND']) {
    const head = get('/fn/open/x').replace('GET', method).replace('\r\n\r\n', '\r\n');
    const withLength = await rawExchange(h.port, `${head}Content-Length: 5\r\n\r\nhello`);
    assert.equal((JSON.parse(withLength.rest.toString()) as Echo).size, 5, method);
    const chunked = await rawExchange(
      h.port,
      `${head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
    );
    assert.equal((JSON.parse(chunked.rest.toString()) as Echo).size, 5, method);
  }
});

test('Expect: 100-continue is answered here and does not reach the function (spanlens/Spanlens#438)', async () => {
  await using h = await startHarness({ listener: echo });
  using client = await rawConnect(h.port);
  client.write(
    'POST /fn/open HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n',
  );
  await client.until(/^HTTP\/1.1 100 Continue\r\n\r\n$/);
  client.write('hello');
  await client.ended();
  const final = client.received().slice('HTTP/1.1 100 Continue\r\n\r\n'.length);
  const seen = JSON.parse(bodyOf(final)) as Echo;
  assert.equal(seen.size, 5);
  assert.deepEqual(valuesOf(seen, 'expect'), []);
});

test('a request that is refused gets its refusal instead of 100 Continue', async () => {
  await using h = await startHarness({ listener: echo });
  const answer = await rawExchange(
    h.port,
    'POST /fn/closed HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n',
  );
  assert.equal(answer.status, 401);
  assert.equal(h.edge.invocations.length, 0);
});

test('trailers of the function follow the last chunk', async () => {
  await using h = await startHarness({
    listener: (_request, response) => {
      response.writeHead(200, { Trailer: 'x-sum' });
      response.write('data');
      response.addTrailers({ 'x-sum': '42', 'Set-Cookie': 'no=1' });
      response.end();
    },
  });
  const answer = await rawExchange(h.port, get('/fn/open'));
  assert.equal(answer.rest.toString(), '4\r\ndata\r\n0\r\nx-sum: 42\r\n\r\n');
});

test("the function's 1xx answers are not taken for the answer", async () => {
  await using h = await startHarness({
    listener: (_request, response) => {
      response.writeProcessing();
      response.writeEarlyHints({ link: '</style.css>; rel=preload' }, () => response.end('final'));
    },
  });
  const answer = await rawExchange(h.port, get('/fn/open'));
  assert.equal(answer.status, 200);
  assert.match(answer.rest.toString(), /final/);
});

test('each chunk goes out before the next is made (openfaas/faas#1109, fission/fission#2767)', async () => {
  const seen = new Map<string, () => void>();
  await using h = await startHarness({
    listener: async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      for (const event of ['head', 'one', 'two', 'three']) {
        if (event !== 'head') response.write(`data: ${event}\n\n`);
        await new Promise<void>((resolve) => seen.set(event, resolve));
      }
      response.end();
    },
  });
  using client = await rawConnect(h.port);
  client.write(get('/fn/open'));
  await client.until(/text\/event-stream[\s\S]*\r\n\r\n$/);
  for (const [event, next] of [
    ['head', 'one'],
    ['one', 'two'],
    ['two', 'three'],
  ] as const) {
    seen.get(event)?.();
    await client.until(new RegExp(`data: ${next}\n\n`));
  }
  seen.get('three')?.();
  await client.until(/0\r\n\r\n$/);
});

test('request chunks reach the function before the request is complete', async () => {
  await using h = await startHarness({
    listener: (request, response) => {
      request.on('data', (chunk) => response.write(chunk));
      request.on('end', () => response.end());
    },
  });
  using client = await rawConnect(h.port);
  client.write(
    'POST /fn/open HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n',
  );
  client.write('4\r\nping\r\n');
  await client.until(/4\r\nping\r\n/);
  client.write('4\r\npong\r\n0\r\n\r\n');
  await client.until(/4\r\npong\r\n0\r\n\r\n/);
});

test('every answer names the version, its digest, the machine and the start', async () => {
  await using h = await startHarness();
  const response = await fetch(`${h.url}/fn/open`);
  const { headers } = response;
  assert.equal(headers.get('x-snapgate-version'), 'v1');
  assert.match(headers.get('x-snapgate-digest') ?? '', /^sha256:[0-9a-f]{64}$/);
  assert.equal(headers.get('x-snapgate-start'), 'reused');
  assert.match(headers.get('x-snapgate-machine') ?? '', /^[a-z0-9]{20}$/);
  assert.match(
    headers.get('server-timing') ?? '',
    /^queue;dur=[0-9.]+, restore;dur=[0-9.]+, exec;dur=[0-9.]+$/,
  );
  assert.equal(await response.text(), 'ok');
});

test('a sane x-request-id is kept, any other is replaced', async () => {
  await using h = await startHarness();
  const idFor = async (sent: string) =>
    (await fetch(`${h.url}/fn/open`, { headers: { 'x-request-id': sent } })).headers.get('x-request-id');
  assert.equal(await idFor('abc-123'), 'abc-123');
  assert.match((await idFor('a b"c')) ?? '', /^[0-9a-f-]{36}$/);
});

test('@version and @alias choose the version, and weights share the calls between versions', async () => {
  await using h = await startHarness();
  publish(h.registry, 'open', { public: true, env: { A: '2' } });
  h.registry.setAlias('open', 'canary', [
    { version: 'v1', weight: 1 },
    { version: 'v2', weight: 1 },
  ]);
  const versionAt = async (ref: string) =>
    (await fetch(`${h.url}/fn/open${ref}`)).headers.get('x-snapgate-version');
  assert.equal(await versionAt(''), 'v2');
  assert.equal(await versionAt('@v1/x'), 'v1');
  const drawn = new Set<string | null>();
  for (let call = 0; call < 100 && drawn.size < 2; call++) drawn.add(await versionAt('@canary'));
  assert.deepEqual([...drawn].sort(), ['v1', 'v2']);
});

test('a version that no alias names is declared to the edge before it is called', async () => {
  await using h = await startHarness();
  publish(h.registry, 'open', { public: true });
  await fetch(`${h.url}/fn/open@v1`);
  const first = h.edge.invocations.at(-1);
  assert.ok(h.edge.declared.at(-1)?.some(({ digest }) => digest === first?.digest));
});

test('a template that was removed and published again under its name is a new one (apache/openwhisk#3151)', async () => {
  await using h = await startHarness();
  const digest = async () => (await fetch(`${h.url}/fn/open`)).headers.get('x-snapgate-digest');
  const before = await digest();
  h.registry.removeTemplate('open');
  publish(h.registry, 'open', { public: true });
  const after = await digest();
  assert.notEqual(before, after);
  assert.deepEqual(
    h.edge.invocations.map((invocation) => invocation.digest),
    [before, after],
  );
});
