import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import type { BuildEvent } from '../../edge/client/index.ts';
import { createAdminClient, GatewayError, isGatewayError, type PublishEvent } from '../../sdk/index.ts';
import { type Harness, newFacts, publish, startHarness } from '../testing/harness.ts';
import { rawConnect } from '../testing/raw-client.ts';
import { stubMachine } from '../testing/stub-edge.ts';

const clientOf = (h: Harness) => createAdminClient({ url: h.url, apiKey: h.key });

/** A build that makes a version of `template` which nobody has seen. */
function building(template: string, changes: Partial<Extract<BuildEvent, { type: 'built' }>> = {}) {
  return async function* (archive: Readable): AsyncGenerator<BuildEvent> {
    yield { type: 'task', id: 'boot', title: 'Boot', state: 'started' };
    for await (const _ of archive);
    yield { type: 'output', id: 'boot', text: 'hello from the guest' };
    const definition = { name: template, public: true };
    yield {
      type: 'built',
      template: template as never,
      definition,
      unchanged: false,
      facts: newFacts(),
      ...changes,
    };
  };
}

async function collect(events: AsyncIterable<PublishEvent>): Promise<PublishEvent[]> {
  const all: PublishEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

const archive = () => new Blob([new Uint8Array(100_000)]);
const served = (h: Harness) =>
  h.edge.declared.at(-1)?.map(({ template, version }) => `${template}@${version}`);

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

test('templates are listed and shown, unknown ones are 404', async () => {
  await using h = await startHarness();
  const client = clientOf(h);
  assert.deepEqual(
    (await client.templates()).map((template) => [template.name, template.latest, template.public]),
    [
      ['closed', 'v1', false],
      ['open', 'v1', true],
    ],
  );
  const detail = await client.template('open');
  assert.deepEqual([detail.history.length, detail.aliases[0]?.alias], [1, 'latest']);
  await assert.rejects(client.template('nothing'), (error) => isGatewayError(error, 'template_not_found'));
});

test('a publish builds, prewarms, moves the alias, and only then lets the old version drain', async () => {
  await using h = await startHarness({ gateway: { timeouts: { retireMs: 30 } } });
  h.edge.behaviour.build = building('open');
  const events = await collect(clientOf(h).publish('open', archive()));
  assert.deepEqual(
    events.map((event) => (event.type === 'task' ? `${event.id} ${event.state}` : event.type)),
    ['boot started', 'output', 'prewarm started', 'prewarm done', 'result'],
  );
  assert.deepEqual(served(h)?.sort(), ['closed@v1', 'open@v1', 'open@v2']);
  assert.equal((await fetch(`${h.url}/fn/open`)).headers.get('x-snapgate-version'), 'v2');
  while (served(h)?.length === 3) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(served(h)?.sort(), ['closed@v1', 'open@v2']);
});

test('a publish under constant load fails no request (knative/serving#12569)', async () => {
  await using h = await startHarness({ gateway: { timeouts: { retireMs: 20 } } });
  const { invoke } = h.edge.behaviour;
  h.edge.behaviour.invoke = async (request) => {
    const isServed = h.edge.declared.at(-1)?.some((version) => version.digest === request.digest);
    if (!isServed) throw new GatewayError('version_unavailable', 'drained', { component: 'edge' });
    return invoke(request);
  };
  let isOver = false;
  const seen = new Set<string | null>();
  while (!h.gateway.isReady) await new Promise((resolve) => setTimeout(resolve, 1));
  const load = Promise.all(
    Array.from({ length: 4 }, async () => {
      while (!isOver) {
        const response = await fetch(`${h.url}/fn/open`);
        assert.equal(response.status, 200);
        seen.add(response.headers.get('x-snapgate-version'));
      }
    }),
  );
  for (let version = 2; version <= 4; version++) {
    h.edge.behaviour.build = building('open');
    await collect(clientOf(h).publish('open', archive()));
    while (!seen.has(`v${version}`)) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  isOver = true;
  await load;
});

test('a build that fails at once keeps its own status, one that fails later says so in its last line', async () => {
  await using h = await startHarness();
  const broken = (after: number) =>
    async function* (): AsyncGenerator<BuildEvent> {
      for (let index = 0; index < after; index++) yield { type: 'output', id: 'run', text: 'x' };
      throw new GatewayError('build_failed', 'it does not start', {
        component: 'templates',
        output: 'SyntaxError',
      });
    };
  h.edge.behaviour.build = broken(0);
  const response = await fetch(`${h.url}/v1/templates/open/versions`, {
    method: 'POST',
    headers: { 'x-api-key': h.key, 'content-type': 'application/gzip' },
    body: 'x',
  });
  assert.equal(response.status, 422);
  h.edge.behaviour.build = broken(2);
  const failed = collect(clientOf(h).publish('open', archive()));
  await assert.rejects(
    failed,
    (error) => isGatewayError(error, 'build_failed') && error.details.output === 'SyntaxError',
  );
  assert.equal((await clientOf(h).template('open')).history.length, 1);
});

test('a version of which no machine becomes ready is undone, and what served still serves', async () => {
  await using h = await startHarness();
  h.edge.behaviour.build = building('open');
  h.edge.behaviour.ready = async ({ version }) => (version === 'v2' ? 'no memory' : null);
  await assert.rejects(
    collect(clientOf(h).publish('open', archive())),
    (error) => isGatewayError(error, 'version_unavailable') && /no memory/.test(error.message),
  );
  const detail = await clientOf(h).template('open');
  assert.deepEqual([detail.latest, detail.history.length], ['v1', 1]);
  assert.equal(h.edge.removed.length, 1);
  assert.deepEqual(served(h)?.sort(), ['closed@v1', 'open@v1']);
});

test('a client that leaves a publish ends the build and leaves nothing', async () => {
  await using h = await startHarness();
  const ended = Promise.withResolvers<void>();
  h.edge.behaviour.build = async function* (_archive, { signal }) {
    yield { type: 'output', id: 'run', text: 'begun' };
    try {
      await once(signal, 'abort');
    } finally {
      ended.resolve();
    }
  };
  for await (const event of clientOf(h).publish('open', archive())) {
    assert.equal(event.type, 'output');
    break;
  }
  await ended.promise;
  // The name is free again.
  h.edge.behaviour.build = building('open');
  for (;;) {
    try {
      await collect(clientOf(h).publish('open', archive()));
      break;
    } catch (error) {
      if (!isGatewayError(error, 'conflict')) throw error;
    }
  }
});

test('two publishes of one template at a time are a conflict', async () => {
  await using h = await startHarness();
  const go = Promise.withResolvers<void>();
  h.edge.behaviour.build = async function* (stream, options) {
    yield { type: 'output', id: 'run', text: 'begun' };
    await go.promise;
    yield* building('open')(stream);
    void options;
  };
  const first = clientOf(h).publish('open', archive())[Symbol.asyncIterator]();
  await first.next();
  await assert.rejects(collect(clientOf(h).publish('open', archive())), (error) =>
    isGatewayError(error, 'conflict'),
  );
  go.resolve();
  while (!(await first.next()).done);
  assert.equal((await clientOf(h).template('open')).latest, 'v2');
});

test('an archive of another template is refused and its build thrown away', async () => {
  await using h = await startHarness();
  h.edge.behaviour.build = building('other');
  await assert.rejects(
    collect(clientOf(h).publish('open', archive())),
    (error) => isGatewayError(error, 'invalid_request') && error.details.field === 'name',
  );
  assert.equal(h.edge.removed.length, 1);
});

test('an archive over the limit is refused with a 413, announced or not', async () => {
  await using h = await startHarness({ gateway: { limits: { archiveBytes: 50_000 } } });
  h.edge.behaviour.build = building('open');
  const tooLarge = (error: unknown) => isGatewayError(error, 'body_too_large');
  await assert.rejects(collect(clientOf(h).publish('open', archive())), tooLarge);
  const stream = () => Readable.toWeb(Readable.from([Buffer.alloc(40_000), Buffer.alloc(40_000)])) as never;
  await assert.rejects(collect(clientOf(h).publish('open', stream())), tooLarge);
});

test('a publish without a key reads its 401 although a big archive is under way', async () => {
  await using h = await startHarness();
  using client = await rawConnect(h.port);
  client.write('POST /v1/templates/open/versions HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n');
  client.write(Buffer.alloc(20_000_000));
  await client.until(/"error_code":"unauthenticated"/);
});

test('versions and templates can be removed, but no version that an alias names', async () => {
  await using h = await startHarness();
  publish(h.registry, 'open', { public: true });
  const client = clientOf(h);
  await assert.rejects(client.removeVersion('open', 'v2'), (error) => isGatewayError(error, 'conflict'));
  await client.removeVersion('open', 'v1');
  assert.equal(h.edge.removed.length, 1);
  await client.removeTemplate('open');
  assert.equal(h.edge.removed.length, 2);
  assert.deepEqual(served(h), ['closed@v1']);
  await assert.rejects(client.removeTemplate('open'), (error) => isGatewayError(error, 'template_not_found'));
});

test('an alias is only moved to versions that can be made ready', async () => {
  await using h = await startHarness();
  publish(h.registry, 'open', { public: true });
  const client = clientOf(h);
  const targets = [{ version: 'v1', weight: 3 }, { version: 'v2' }];
  const alias = await client.setAlias('open', 'canary', targets);
  assert.deepEqual(alias.targets, [
    { version: 'v1', weight: 3 },
    { version: 'v2', weight: 1 },
  ]);
  assert.deepEqual(served(h)?.sort(), ['closed@v1', 'open@v1', 'open@v2']);
  h.edge.behaviour.ready = async () => 'no memory';
  await assert.rejects(client.setAlias('open', 'other', targets), (error) =>
    isGatewayError(error, 'version_unavailable'),
  );
  assert.equal((await client.template('open')).aliases.length, 2);
  h.edge.behaviour.ready = async () => null;
  assert.ok((await client.aliases()).some(({ alias: name }) => name === 'canary'));
  for (const bad of [[{ version: 'v9' }], [], [{ version: 'v1', weight: 0 }]]) {
    await assert.rejects(client.setAlias('open', 'canary', bad), GatewayError);
  }
  await assert.rejects(client.setAlias('open', 'v7', targets), (error) =>
    isGatewayError(error, 'invalid_request'),
  );
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

test('the OpenAPI document names every route', async () => {
  await using h = await startHarness();
  const document = (await (await fetch(`${h.url}/openapi.json`)).json()) as { paths: Record<string, object> };
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method} ${path}`),
  );
  assert.deepEqual(routes.sort(), [
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
  ]);
});
