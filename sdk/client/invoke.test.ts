import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError, isGatewayError, toProblem } from '../errors.ts';
import { createAdminClient } from './index.ts';

const startHeaders = {
  'x-snapgate-start': 'ready',
  'x-snapgate-machine': 'abcd0123456789abcdef',
  'x-snapgate-version': 'v3',
  'server-timing': 'queue;dur=0.5, restore;dur=12, exec;dur=3.25, exec;dur=99;desc="forged"',
};

function clientOver(answer: (url: string, init: RequestInit) => Response) {
  const seen: { url: string; init: RequestInit }[] = [];
  const client = createAdminClient({
    url: 'http://gateway.test/base',
    apiKey: 'k',
    fetch: async (input, init = {}) => {
      seen.push({ url: String(input), init });
      return answer(String(input), init);
    },
  });
  return { client, seen };
}

test('an invocation tells which machine answered, how it started and how long each phase took', async () => {
  const { client } = clientOver(() => new Response('hello', { headers: startHeaders }));
  const { response, start } = await client.invoke('hello');
  assert.equal(await response.text(), 'hello');
  assert.deepEqual(start, {
    type: 'ready',
    machine: 'abcd0123456789abcdef',
    version: 'v3',
    digest: null,
    timing: { queueMs: 0.5, restoreMs: 12, execMs: 3.25 },
  });
});

test('path, query, session and time limit reach the wire as given', async () => {
  const { client, seen } = clientOver(() => new Response());
  await client.invoke('hello@canary', {
    path: '/a%2Fb/?x=1&x=2',
    body: 'data',
    session: 's1',
    timeoutMs: 500,
  });
  const [{ url, init }] = seen as [(typeof seen)[0]];
  assert.equal(url, 'http://gateway.test/base/fn/hello@canary/a%2Fb/?x=1&x=2');
  assert.equal(init.method, 'POST');
  const headers = new Headers(init.headers);
  assert.equal(headers.get('x-snapgate-session'), 's1');
  assert.equal(headers.get('x-snapgate-timeout-ms'), '500');
  assert.equal(headers.get('authorization'), 'Bearer k');
});

test("a function's own error status is an answer", async () => {
  const { client } = clientOver(() => new Response('boom', { status: 500, headers: startHeaders }));
  const { response } = await client.invoke('hello');
  assert.equal(response.status, 500);
  assert.equal(await response.text(), 'boom');
});

test("a gateway's error is thrown even where a function could have sent the same status", async () => {
  const problem = toProblem(new GatewayError('function_crashed', 'hello ended with exit code 1'));
  const { client } = clientOver(
    () =>
      new Response(JSON.stringify(problem), {
        status: 502,
        headers: { 'x-snapgate-error': 'edge/function_crashed' },
      }),
  );
  await assert.rejects(client.invoke('hello'), (error) => {
    assert.ok(isGatewayError(error, 'function_crashed'));
    assert.equal(error.details.component, 'edge');
    return true;
  });
});

test('a path cannot climb out of its function to another route', async () => {
  const { client, seen } = clientOver(() => new Response());
  for (const path of ['/../../v1/keys', '/%2e%2e/%2E%2E/v1/keys', '/..', '/a/../../other/', '\\..\\..\\x']) {
    await assert.rejects(
      client.invoke('hello', { path }),
      (error) => isGatewayError(error, 'invalid_request'),
      path,
    );
  }
  for (const template of ['', '..', 'hello/x', 'Hello', 'a@b@c', 'hello?x']) {
    await assert.rejects(client.invoke(template), (error) => isGatewayError(error, 'invalid_request'));
  }
  assert.equal(seen.length, 0);
  await client.invoke('hello', { path: '/a/../b' });
  assert.equal(seen.length, 1);
});
