import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { test } from 'node:test';
import { GatewayError, isGatewayError, Snapgate } from '../../sdk/index.ts';
import { startHarness } from '../testing/harness.ts';

const keyed = (key: string, more: RequestInit = {}): RequestInit => ({
  method: 'POST',
  ...more,
  headers: { 'idempotency-key': key, ...(more.headers as Record<string, string>) },
});

test('a repeated call gets the same answer and the function runs once, whatever its status', async () => {
  let calls = 0;
  await using h = await startHarness({
    listener: (_request, response) => {
      calls += 1;
      response.writeHead(418, { 'x-call': String(calls), 'content-type': 'text/x' });
      response.end(`call ${calls}`);
    },
  });
  const send = (key: string, body = 'b') => fetch(`${h.url}/fn/open/p?q`, keyed(key, { body }));
  const answers = await Promise.all([send('k'), send('k'), send('k')]);
  for (const answer of [...answers, await send('k')]) {
    assert.deepEqual([answer.status, answer.headers.get('x-call')], [418, '1']);
    assert.equal(await answer.text(), 'call 1');
  }
  assert.equal(answers.filter((answer) => answer.headers.get('x-snapgate-replayed') === 'true').length, 2);
  assert.equal((await send('k', 'another body')).status, 409);
  assert.equal((await fetch(`${h.url}/fn/open/other`, keyed('k', { body: 'b' }))).status, 409);
  assert.equal((await send('k2')).headers.get('x-call'), '2');
  const unkeyed = await fetch(`${h.url}/fn/open/p?q`, { method: 'POST', body: 'b' });
  assert.deepEqual([unkeyed.headers.get('x-call'), unkeyed.headers.get('x-snapgate-replayed')], ['3', null]);
});

test('callers with different keys of ours do not meet under one Idempotency-Key', async () => {
  let calls = 0;
  await using h = await startHarness({
    listener: (_request, response) => void response.end(String(++calls)),
  });
  const other = h.keys.create('other').key;
  const send = async (apiKey: string) =>
    (
      await fetch(`${h.url}/fn/closed/`, keyed('k', { headers: { authorization: `Bearer ${apiKey}` } }))
    ).text();
  assert.deepEqual([await send(h.key), await send(other), await send(h.key)], ['1', '2', '1']);
});

test('an answer is streamed to its first caller, and whoever comes again after a lost connection finds it whole', async () => {
  let calls = 0;
  const goOn = Promise.withResolvers<void>();
  await using h = await startHarness({
    listener: async (_request, response) => {
      calls += 1;
      response.write('first ');
      await goOn.promise;
      response.end('second');
    },
  });
  const options = { port: h.port, path: '/fn/open/', method: 'POST', headers: { 'idempotency-key': 'k' } };
  const request = httpRequest(options).end();
  const [response] = await once(request, 'response');
  assert.equal(String((await once(response, 'data'))[0]), 'first ');
  request.on('error', () => {}).destroy();
  await h.finished();
  const again = fetch(`${h.url}/fn/open/`, keyed('k'));
  goOn.resolve();
  assert.equal(await (await again).text(), 'first second');
  assert.equal(calls, 1);
});

test('a refusal leaves the key free, and a call that may have run is not made again', async () => {
  await using h = await startHarness();
  const errors = [
    new GatewayError('queue_full', 'wait', { component: 'pool', retryAfterSeconds: 1 }),
    new GatewayError('guest_unreachable', 'gone', { component: 'guest' }),
  ];
  const { invoke } = h.edge.behaviour;
  h.edge.behaviour.invoke = async (request) => {
    const error = errors.shift();
    if (error !== undefined) throw error;
    return invoke(request);
  };
  const send = () => fetch(`${h.url}/fn/open/`, keyed('k'));
  assert.equal((await send()).status, 429);
  assert.equal((await send()).status, 502);
  const again = await send();
  assert.deepEqual([again.status, again.headers.get('x-snapgate-error')], [502, 'guest/guest_unreachable']);
  assert.equal(h.edge.invocations.length, 2);
});

test('an answer over the limit is relayed whole once, and then told to be gone', async () => {
  const big = Buffer.alloc(1_200_000, 'x');
  await using h = await startHarness({ listener: (_request, response) => void response.end(big) });
  const first = await fetch(`${h.url}/fn/open/`, keyed('k'));
  assert.equal((await first.arrayBuffer()).byteLength, big.length);
  const second = await fetch(`${h.url}/fn/open/`, keyed('k'));
  assert.equal(second.status, 409);
  assert.match(await second.text(), /too large/);
  assert.equal((await fetch(`${h.url}/fn/open/`, keyed('l', { body: big }))).status, 413);
  assert.equal((await fetch(`${h.url}/fn/open/`, keyed('x'.repeat(256)))).status, 400);
});

test('the SDK repeats a keyed call whose answer was lost, and no other', async () => {
  let calls = 0;
  await using h = await startHarness({
    listener: (_request, response) => void response.end(String(++calls)),
  });
  let losses = 0;
  const lossy: typeof fetch = async (...call) => {
    const response = await fetch(...call);
    if (losses-- <= 0) return response;
    await response.arrayBuffer();
    throw new TypeError('the connection was lost');
  };
  const snapgate = new Snapgate({ url: h.url, apiKey: h.key, fetch: lossy });
  losses = 2;
  const { response } = await snapgate.invoke('closed', { body: 'b', idempotencyKey: 'k' });
  assert.equal(await response.text(), '1');
  losses = 1;
  await assert.rejects(snapgate.invoke('closed', { body: 'b' }), (error) =>
    isGatewayError(error, 'host_not_ready'),
  );
});
