import assert from 'node:assert/strict';
import { test } from 'node:test';
import { functionHeaders, type RequestHeaderFacts } from './request-headers.ts';

const facts: RequestHeaderFacts = {
  peer: '10.0.0.9',
  isTrusted: false,
  protocol: 'http',
  host: 'api.example.test:8080',
  prefix: '/fn/x',
  requestId: 'r1',
  credentialHeaders: [],
  upgrade: null,
};

/** Lower-cased name → values, in order. */
function seen(
  rawHeaders: readonly string[],
  changes: Partial<RequestHeaderFacts> = {},
): Record<string, string[]> {
  const headers = functionHeaders(rawHeaders, { ...facts, ...changes });
  const result: Record<string, string[]> = {};
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at]!.toLowerCase();
    result[name] = [...(result[name] ?? []), headers[at + 1]!];
  }
  return result;
}

test('hop-by-hop headers and those named in Connection stay here (honojs/hono#4459, http-proxy-3#28)', () => {
  const headers = seen([
    'Connection',
    'keep-alive, X-Private',
    'connection',
    'x-other',
    'X-Private',
    '1',
    'x-other',
    '2',
    'Keep-Alive',
    'timeout=5',
    'Proxy-Connection',
    'keep-alive',
    'Proxy-Authorization',
    'Basic eA==',
    'TE',
    'gzip',
    'Transfer-Encoding',
    'chunked',
    'Upgrade',
    'h2c',
    'Trailer',
    'x-sum',
    'Expect',
    '100-continue',
    'Accept',
    '*/*',
  ]);
  assert.deepEqual(Object.keys(headers).sort(), [
    'accept',
    'forwarded',
    'host',
    'x-forwarded-for',
    'x-forwarded-host',
    'x-forwarded-port',
    'x-forwarded-prefix',
    'x-forwarded-proto',
    'x-request-id',
  ]);
});

test('naming Host or Content-Length in Connection does not remove them', () => {
  const headers = seen(['Connection', 'host, content-length, x-forwarded-for', 'Content-Length', '5']);
  assert.deepEqual(headers['content-length'], ['5']);
  assert.deepEqual(headers.host, ['api.example.test:8080']);
  assert.deepEqual(headers['x-forwarded-for'], ['10.0.0.9']);
});

test("forged forwarding headers are replaced by the peer's real address (openfaas/faas#749, azure#4542)", () => {
  const headers = seen([
    'X-Forwarded-For',
    '6.6.6.6',
    'x-forwarded-host',
    'evil',
    'X-Forwarded-Proto',
    'https',
    'X-Forwarded-Anything',
    'evil',
    'Forwarded',
    'for=6.6.6.6',
    'X-Real-IP',
    '6.6.6.6',
  ]);
  assert.deepEqual(headers['x-forwarded-for'], ['10.0.0.9']);
  assert.deepEqual(headers['x-forwarded-host'], ['api.example.test:8080']);
  assert.deepEqual(headers['x-forwarded-proto'], ['http']);
  assert.deepEqual(headers['x-forwarded-port'], ['8080']);
  assert.deepEqual(headers['x-forwarded-prefix'], ['/fn/x']);
  assert.deepEqual(headers.forwarded, ['for=10.0.0.9;host="api.example.test:8080";proto=http']);
  assert.ok(!('x-forwarded-anything' in headers) && !('x-real-ip' in headers));
});

test('the chain of a trusted proxy is continued', () => {
  const headers = seen(
    [
      'X-Forwarded-For',
      '1.1.1.1, 2.2.2.2',
      'X-Forwarded-Proto',
      'https',
      'Forwarded',
      'for=1.1.1.1',
      'X-Forwarded-Host',
      'public.test',
    ],
    { isTrusted: true, peer: '::1' },
  );
  assert.deepEqual(headers['x-forwarded-for'], ['1.1.1.1, 2.2.2.2, ::1']);
  assert.deepEqual(headers['x-forwarded-proto'], ['https']);
  assert.deepEqual(headers['x-forwarded-host'], ['public.test']);
  assert.deepEqual(headers.forwarded, ['for=1.1.1.1, for="[::1]";host="api.example.test:8080";proto=http']);
});

test('names that imitate a controlled header with underscores are dropped', () => {
  const headers = seen(
    ['X_Forwarded_For', '6.6.6.6', 'x_snapgate_session', 's', 'x_request_id', 'r', 'my_header', '1'],
    {
      isTrusted: true,
    },
  );
  assert.deepEqual(headers['x-forwarded-for'], ['10.0.0.9']);
  assert.deepEqual(headers.my_header, ['1']);
  for (const name of ['x_forwarded_for', 'x_snapgate_session', 'x_request_id'])
    assert.ok(!(name in headers), name);
});

test('of x-snapgate-* only the session reaches the function', () => {
  const headers = seen(['x-snapgate-session', 's1', 'X-Snapgate-Timeout-Ms', '5', 'x-snapgate-machine', 'm']);
  assert.deepEqual(headers['x-snapgate-session'], ['s1']);
  assert.ok(!('x-snapgate-timeout-ms' in headers) && !('x-snapgate-machine' in headers));
});

test('a header that carries a Snapgate key does not reach the function, any other does', () => {
  const raw = ['Authorization', 'Bearer own', 'X-API-Key', 'e2b_x'];
  assert.deepEqual(Object.keys(seen(raw, { credentialHeaders: ['x-api-key'] })).includes('x-api-key'), false);
  assert.deepEqual(seen(raw, { credentialHeaders: ['x-api-key'] }).authorization, ['Bearer own']);
});

test('order, case and repeated headers are kept', () => {
  const headers = functionHeaders(['X-B', '1', 'x-a', '2', 'X-B', '3'], facts);
  assert.deepEqual(headers.slice(2, 8), ['X-B', '1', 'x-a', '2', 'X-B', '3']);
});

test('a client that takes trailers says so to the function', () => {
  assert.deepEqual(seen(['TE', 'gzip, trailers']).te, ['trailers']);
});
