import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { startHarness } from './testing/harness.ts';
import { parseAnswer, rawConnect, rawExchange } from './testing/raw-client.ts';

const problemOf = (text: string) => {
  const answer = parseAnswer(text);
  return { status: answer.status, code: JSON.parse(answer.rest.toString()).error_code, answer };
};

test('malformed requests are refused with a problem document and never reach a function', async () => {
  await using h = await startHarness();
  const cases: Record<string, string> = {
    'length and chunks':
      'POST /fn/open HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'two lengths': 'POST /fn/open HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello',
    'a list of lengths': 'POST /fn/open HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello',
    'chunked not last':
      'POST /fn/open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n',
    'space before the colon': 'GET /fn/open HTTP/1.1\r\nHost : a\r\n\r\n',
    'folded header': 'GET /fn/open HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\nConnection: close\r\n\r\n',
    'bare line feed in a header': 'GET /fn/open HTTP/1.1\nHost: a\n\n',
    'unknown method': 'BREW /fn/open HTTP/1.1\r\nHost: a\r\n\r\n',
    'unknown version': 'GET /fn/open HTTP/3.0\r\nHost: a\r\n\r\n',
    'no request at all': 'hello\r\n\r\n',
  };
  for (const [name, request] of Object.entries(cases)) {
    const answer = await rawExchange(h.port, request);
    if (name === 'folded header') continue;
    assert.equal(answer.status, 400, name);
    assert.equal(answer.header('x-snapgate-error'), 'gateway/invalid_request', name);
    assert.equal(answer.header('connection'), 'close', name);
  }
});

test('a body whose chunks are broken ends the request, not the gateway', async () => {
  await using h = await startHarness({
    listener: (request, response) => void request.resume().on('end', () => response.end('whole')),
  });
  using client = await rawConnect(h.port);
  client.write('POST /fn/open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n');
  await client.ended();
  assert.doesNotMatch(client.received(), /whole/);
  assert.equal((await fetch(`${h.url}/healthz`)).status, 200);
});

test('a request needs exactly one usable Host', async () => {
  await using h = await startHarness();
  for (const hosts of ['', 'Host: a\r\nHost: a\r\n', 'Host: a/b\r\n', 'Host: a"b\r\n', 'Host: a b\r\n']) {
    const answer = await rawExchange(h.port, `GET /fn/open HTTP/1.1\r\n${hosts}Connection: close\r\n\r\n`);
    assert.equal(answer.status, 400, hosts);
    assert.equal(answer.header('x-snapgate-error'), 'gateway/invalid_request');
  }
  assert.equal(h.edge.invocations.length, 0);
});

test('headers over the limit are answered 431 with the limit', async () => {
  await using h = await startHarness({ gateway: { limits: { headerBytes: 4096, headers: 100 } } });
  for (const request of [
    `GET /fn/open HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(8000)}\r\n\r\n`,
    `GET /fn/open?${'x'.repeat(8000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
  ]) {
    using client = await rawConnect(h.port);
    client.write(request);
    await client.until(/"error_code":"headers_too_large".*\n$/);
    const { status, answer } = problemOf(client.received());
    assert.equal(status, 431);
    assert.equal(JSON.parse(answer.rest.toString()).limitBytes, 4096);
  }
});

test('more headers than the limit are answered 431 with the limit', async () => {
  await using h = await startHarness({ gateway: { limits: { headers: 100 } } });
  const request = `GET /fn/open HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${'a: 1\r\n'.repeat(99)}\r\n`;
  const answer = await rawExchange(h.port, request);
  assert.equal(answer.status, 431);
  assert.equal(JSON.parse(answer.rest.toString()).limit, 100);
});

test('many small headers all arrive, none vanishes', async () => {
  await using h = await startHarness({ gateway: { limits: { headerBytes: 64 * 1024 } } });
  const lines = Array.from({ length: 900 }, (_, index) => `h${index}: 1\r\n`).join('');
  await rawExchange(h.port, `GET /fn/open HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${lines}\r\n`);
  assert.equal(h.edge.invocations[0]?.rawHeaders.filter((name) => /^h[0-9]+$/.test(name)).length, 900);
});

test('headers that come too slowly are answered 408', async () => {
  await using h = await startHarness({ gateway: { timeouts: { headersMs: 100 } } });
  using client = await rawConnect(h.port);
  client.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n');
  await client.until(/"error_code":"request_timeout"/);
  assert.equal(parseAnswer(client.received()).status, 408);
});

test('TRACE and CONNECT are refused with 405 and the methods there are', async () => {
  await using h = await startHarness();
  for (const line of ['TRACE /fn/open', 'TRACE /healthz', 'CONNECT example.test:443']) {
    const answer = await rawExchange(h.port, `${line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
    assert.equal(answer.status, 405, line);
    assert.equal(answer.header('allow'), 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS');
  }
  assert.equal(h.edge.invocations.length, 0);
});

test('connections over the limit are closed', async () => {
  await using h = await startHarness({ gateway: { limits: { connections: 1 } } });
  using _first = await rawConnect(h.port);
  using second = await rawConnect(h.port);
  await second.ended();
  assert.equal(second.received(), '');
});

test('closing waits for what is in flight, and asks keep-alive clients to go', async () => {
  const release = Promise.withResolvers<void>();
  await using h = await startHarness({
    listener: async (_request, response) => {
      await release.promise;
      response.end('finished');
    },
  });
  using client = await rawConnect(h.port);
  client.write('GET /fn/open HTTP/1.1\r\nHost: a\r\n\r\n');
  await once(h.functionServer, 'request');
  const closing = h.gateway.close();
  assert.equal(h.gateway.isReady, false);
  release.resolve();
  await closing;
  await client.until(/Connection: close[\s\S]*finished/i);
  await assert.rejects(fetch(`${h.url}/healthz`));
});

test('closing with a signal that fires does not wait for a function that never ends', async () => {
  await using h = await startHarness({ listener: () => {} });
  const request = fetch(`${h.url}/fn/open`);
  await once(h.functionServer, 'request');
  await Promise.all([h.gateway.close({ signal: AbortSignal.abort() }), assert.rejects(request)]);
});

test('an admin request that stops in the middle of its body is closed', async () => {
  await using h = await startHarness({ gateway: { timeouts: { uploadIdleMs: 100 } } });
  using client = await rawConnect(h.port);
  const headers = `Host: a\r\nX-API-KEY: ${h.key}\r\nContent-Type: application/json\r\nContent-Length: 100`;
  client.write(`POST /v1/keys HTTP/1.1\r\n${headers}\r\n\r\n{"name":`);
  await client.ended();
  assert.equal(client.received(), '');
});

test('idle connections are kept longer than usual clients keep them (aws-lambda-web-adapter#40)', async () => {
  await using h = await startHarness();
  const response = await fetch(`${h.url}/fn/open`);
  assert.equal(response.headers.get('keep-alive'), 'timeout=75');
});

test('an upgrade with a body or another method than GET is a plain request', async () => {
  await using h = await startHarness();
  for (const line of ['POST /fn/open', 'TRACE /fn/open', 'GET /fn/open']) {
    const headers = 'Host: a\r\nConnection: Upgrade, close\r\nUpgrade: echo\r\nContent-Length: 4';
    const answer = await rawExchange(h.port, `${line} HTTP/1.1\r\n${headers}\r\n\r\nbody`);
    assert.equal(answer.status, line.startsWith('TRACE') ? 405 : 200, line);
  }
});
