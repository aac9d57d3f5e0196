import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import { clientOf, startHarness } from '../testing/harness.ts';
import { stubMachine } from '../testing/stub-edge.ts';

test('everything under /v1 needs a key, health and metrics need none', async () => {
  await using h = await startHarness();
  for (const path of [
    'templates',
    'templates/x',
    'aliases',
    'machines',
    'nodes',
    'pools',
    'keys',
    'limits',
    'logs',
    'nothing',
  ]) {
    assert.equal((await fetch(`${h.url}/v1/${path}`)).status, 401, path);
  }
  for (const path of ['healthz', 'metrics', 'openapi.json']) {
    assert.equal((await fetch(`${h.url}/${path}`)).status, 200, path);
  }
});

test('a wrong path is 404, a wrong method 405 with the right ones', async () => {
  await using h = await startHarness();
  const headers = { 'x-api-key': h.key };
  const answer = async (method: string, path: string) => {
    const response = await fetch(`${h.url}${path}`, { method, headers });
    return [response.status, response.headers.get('allow'), response.headers.get('x-snapgate-error')];
  };
  assert.deepEqual(await answer('GET', '/v1/nothing'), [404, null, 'gateway/route_not_found']);
  assert.deepEqual(await answer('GET', '/'), [404, null, 'gateway/route_not_found']);
  assert.deepEqual(await answer('PATCH', '/v1/templates/x'), [
    405,
    'DELETE, GET, HEAD',
    'gateway/method_not_allowed',
  ]);
  assert.deepEqual(await answer('GET', '/v1/templates/x/versions'), [
    405,
    'POST',
    'gateway/method_not_allowed',
  ]);
});

test('keys are made, listed without themselves, and removed', async () => {
  await using h = await startHarness();
  const client = clientOf(h);
  const created = await client.createKey('ci');
  assert.equal((await fetch(`${h.url}/v1/nodes`, { headers: { 'x-api-key': created.key } })).status, 200);
  const listed = await client.keys();
  assert.deepEqual(listed.map(({ name }) => name).sort(), ['ci', 'test']);
  assert.ok(!JSON.stringify(listed).includes(created.key));
  await client.removeKey(created.id);
  assert.equal((await fetch(`${h.url}/v1/nodes`, { headers: { 'x-api-key': created.key } })).status, 401);
  await assert.rejects(client.removeKey(created.id), (error) => isGatewayError(error, 'key_not_found'));
});

test('bad bodies name their field, and big ones are refused', async () => {
  await using h = await startHarness();
  const send = async (body: string, contentType = 'application/json') => {
    const headers = { 'x-api-key': h.key, 'content-type': contentType };
    const response = await fetch(`${h.url}/v1/keys`, { method: 'POST', headers, body });
    return [response.status, ((await response.json()) as { field?: string }).field];
  };
  assert.deepEqual(await send('{"name":""}'), [400, 'name']);
  assert.deepEqual(await send('{"name":"a","extra":1}'), [400, undefined]);
  assert.deepEqual(await send('{'), [400, undefined]);
  assert.equal((await send('{"name":"a"}', 'text/plain'))[0], 400);
  assert.deepEqual(await send(JSON.stringify({ name: 'x'.repeat(300_000) })), [413, undefined]);
});

test('logs are streamed as the edge tells them, and closing the connection ends them there', async () => {
  await using h = await startHarness();
  const ended = Promise.withResolvers<void>();
  h.edge.behaviour.logs = async function* (request) {
    assert.deepEqual([request.tail, request.follow, request.streams], [5, true, ['stderr']]);
    assert.equal(request.digests.length, 1);
    yield { at: 1, machine: stubMachine, stream: 'stderr', text: 'one' };
    try {
      await once(request.signal, 'abort');
    } finally {
      ended.resolve();
    }
  };
  const query = { template: 'open', version: 'latest', streams: ['stderr'], tail: 5, follow: true } as const;
  for await (const line of clientOf(h).logs(query)) {
    assert.equal(line.text, 'one');
    break;
  }
  await ended.promise;
});

test('a follower of silent logs gets the head of the answer, and logs that break off are not taken for whole', async () => {
  await using h = await startHarness();
  const broken = Promise.withResolvers<never>();
  h.edge.behaviour.logs = async function* () {
    yield await broken.promise;
  };
  const headers = { 'x-api-key': h.key };
  const answer = await fetch(`${h.url}/v1/logs?template=open&follow=true`, { headers });
  assert.equal(answer.status, 200);
  broken.reject(new Error('the edge is gone'));
  await assert.rejects(answer.text());
});

test('logs of an unknown template or machine are 404, an odd query is 400', async () => {
  await using h = await startHarness();
  const status = async (query: string) =>
    (await fetch(`${h.url}/v1/logs?${query}`, { headers: { 'x-api-key': h.key } })).status;
  assert.equal(await status('template=nothing'), 404);
  assert.equal(await status('template=open&version=v9'), 404);
  assert.equal(await status('template=open&machine=none'), 404);
  assert.equal(await status('template=open&color=red'), 400);
  assert.equal(await status('template=open&tail=-1'), 400);
  assert.equal(await status('template=open'), 200);
});

test('readyz follows the nodes: not before one has taken the serving set', async () => {
  const taken = Promise.withResolvers<null>();
  await using h = await startHarness({
    beforeStart: (edge) => {
      edge.behaviour.ready = () => taken.promise;
    },
  });
  const first = await fetch(`${h.url}/readyz`);
  assert.equal(first.status, 503);
  assert.equal(first.headers.get('x-snapgate-error'), 'gateway/host_not_ready');
  assert.match(first.headers.get('retry-after') ?? '', /^[0-9]+$/);
  taken.resolve(null);
  while ((await fetch(`${h.url}/readyz`)).status !== 200);
});

test('a node that refuses the serving set at first is asked again', async () => {
  let attempts = 0;
  await using h = await startHarness({
    beforeStart: (edge) => {
      edge.behaviour.ready = async () => {
        attempts += 1;
        if (attempts < 3) throw new GatewayError('edge_unreachable', 'not yet', { component: 'edge' });
        return null;
      };
    },
  });
  while ((await fetch(`${h.url}/readyz`)).status !== 200)
    await new Promise((resolve) => setTimeout(resolve, 10));
  assert.ok(attempts >= 3);
});

test('metrics of gateway and nodes are in one text, and a node in trouble does not hide the gateway', async () => {
  await using h = await startHarness();
  h.edge.behaviour.metrics = async () => 'snapgate_machines{state="ready"} 2\n';
  await (await fetch(`${h.url}/fn/open`)).text();
  await fetch(`${h.url}/fn/unknown-name`);
  await h.finished(2);
  const text = await (await fetch(`${h.url}/metrics`)).text();
  assert.match(text, /^snapgate_machines\{state="ready"\} 2$/m);
  assert.match(text, /^snapgate_invocations_total\{template="open",outcome="answered",start="reused"\} 1$/m);
  assert.match(text, /^snapgate_errors_total\{component="gateway",code="unauthenticated"\} 1$/m);
  assert.match(text, /^snapgate_invocations_in_flight 0$/m);
  assert.doesNotMatch(text, /unknown-name/);
  h.edge.behaviour.metrics = async () => {
    throw new Error('gone');
  };
  assert.match(await (await fetch(`${h.url}/metrics`)).text(), /snapgate_invocations_total/);
});

test('the OpenAPI document names the routes of templates, keys, nodes and health', async () => {
  await using h = await startHarness();
  const document = (await (await fetch(`${h.url}/openapi.json`)).json()) as { paths: Record<string, object> };
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method} ${path}`),
  );
  const expected = [
    'delete /v1/keys/{id}',
    'delete /v1/templates/{name}',
    'delete /v1/templates/{name}/aliases/{alias}',
    'delete /v1/templates/{name}/versions/{version}',
    'get /healthz',
    'get /metrics',
    'get /readyz',
    'get /v1/aliases',
    'get /v1/keys',
    'get /v1/logs',
    'get /v1/machines',
    'get /v1/nodes',
    'get /v1/pools',
    'get /v1/templates',
    'get /v1/templates/{name}',
    'post /v1/keys',
    'post /v1/templates/{name}/versions',
    'put /v1/templates/{name}/aliases/{alias}',
  ];
  assert.deepEqual(
    expected.filter((route) => !routes.includes(route)),
    [],
  );
});
