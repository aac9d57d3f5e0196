import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { GatewayError, isGatewayError, toProblem } from '../errors.ts';
import { createAdminClient, isUnreachable } from './index.ts';

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const digest = `sha256:${'ab'.repeat(32)}`;
const facts = {
  digest,
  builtAt: 1,
  buildMs: 2,
  memoryBytes: 3,
  stateBytes: 4,
  diskBytes: 5,
  accelerator: 'tcg',
  verifyRestoreMs: 6,
  verifyFirstResponseMs: null,
};

async function serve(context: TestContext, listener: RequestListener) {
  const server = createServer(listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, client: createAdminClient({ url, apiKey: 'e2b_secret' }), server };
}

const json =
  (value: unknown, status = 200): RequestListener =>
  (_, response) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(value));
  };

test('each call uses its route, its method and the key', async (context) => {
  const seen: string[] = [];
  const template = { name: 'hello', createdAt: 1, versions: 1, latest: 'v1', public: false };
  const alias = { template: 'hello', alias: 'live', targets: [{ version: 'v1', weight: 1 }], updatedAt: 1 };
  const key = { id: 'k1', name: 'ci', prefix: 'e2b_12', createdAt: 1, lastUsedAt: null };
  const answers: Record<string, unknown> = {
    'GET /v1/templates/hello': { ...template, history: [], aliases: [alias] },
    'PUT /v1/templates/hello/aliases/live': alias,
    'GET /v1/templates': { items: [template] },
    'GET /v1/aliases': { items: [alias] },
    'GET /v1/keys': { items: [key] },
    'POST /v1/keys': { ...key, key: 'e2b_1234' },
  };
  const { client } = await serve(context, async (request, response) => {
    const route = `${request.method} ${request.url}`;
    seen.push(`${route} ${await text(request)}`.trim());
    assert.equal(request.headers.authorization, 'Bearer e2b_secret');
    if (request.method === 'DELETE') return void response.writeHead(204).end();
    json(answers[route] ?? { items: [] })(request, response as never);
  });

  assert.deepEqual(await client.templates(), [template]);
  assert.equal((await client.template('hello')).aliases.length, 1);
  assert.deepEqual(await client.aliases(), [alias]);
  assert.deepEqual(await client.setAlias('hello', 'live', [{ version: 'v1' }]), alias);
  await client.removeAlias('hello', 'live');
  await client.removeVersion('hello', 'v1');
  await client.removeTemplate('hello');
  assert.deepEqual(await client.machines(), []);
  assert.deepEqual(await client.pools(), []);
  assert.deepEqual(await client.nodes(), []);
  assert.deepEqual(await client.keys(), [key]);
  assert.equal((await client.createKey('ci')).key, 'e2b_1234');
  await client.removeKey('k1');

  assert.deepEqual(seen, [
    'GET /v1/templates',
    'GET /v1/templates/hello',
    'GET /v1/aliases',
    'PUT /v1/templates/hello/aliases/live {"targets":[{"version":"v1"}]}',
    'DELETE /v1/templates/hello/aliases/live',
    'DELETE /v1/templates/hello/versions/v1',
    'DELETE /v1/templates/hello',
    'GET /v1/machines',
    'GET /v1/pools',
    'GET /v1/nodes',
    'GET /v1/keys',
    'POST /v1/keys {"name":"ci"}',
    'DELETE /v1/keys/k1',
  ]);
});

test('an error of the gateway arrives with its code, field, output and retry time', async (context) => {
  const sent = new GatewayError('queue_full', 'the queue of hello is full', {
    field: 'pool.max',
    output: 'last words',
  });
  const { client } = await serve(context, (_, response) => {
    response.writeHead(429, {
      'retry-after': '7',
      'x-snapgate-error': 'pool/queue_full',
      'x-request-id': 'r1',
    });
    response.end(JSON.stringify(toProblem(sent)));
  });
  await assert.rejects(client.templates(), (error) => {
    assert.ok(isGatewayError(error, 'queue_full'));
    assert.equal(error.message, 'the queue of hello is full');
    assert.deepEqual(error.details, {
      component: 'pool',
      retryAfterSeconds: 7,
      field: 'pool.max',
      output: 'last words',
      extra: { requestId: 'r1' },
    });
    return true;
  });
});

test('an answer of something that is no gateway is said to be one', async (context) => {
  const { client } = await serve(
    context,
    (_, response) => void response.writeHead(404).end('<h1>nginx</h1>'),
  );
  await assert.rejects(client.templates(), (error) => {
    assert.ok(isGatewayError(error, 'route_not_found'));
    assert.match(error.message, /does a Snapgate gateway listen there/);
    return true;
  });
});

test('an answer that does not fit the contract is refused and its field named', async (context) => {
  const { client } = await serve(context, json({ items: [{ name: 'hello', createdAt: 'yesterday' }] }));
  await assert.rejects(client.templates(), (error) => {
    assert.ok(isGatewayError(error, 'internal'));
    assert.equal(error.details.field, 'items.0.createdAt');
    return true;
  });
});

test('a gateway that is not there is unreachable, with the errno in the message', async (context) => {
  const { client, server } = await serve(context, json({}));
  server.close();
  await once(server, 'close');
  await assert.rejects(client.templates(), (error) => {
    assert.ok(isUnreachable(error) && error instanceof GatewayError);
    assert.match(error.message, /ECONNREFUSED/);
    return true;
  });
});

test('an error which the gateway itself sends is never taken for an unreachable gateway', async (context) => {
  const sent = new GatewayError('host_not_ready', 'no QEMU');
  const { client } = await serve(context, json(toProblem(sent), 503));
  await assert.rejects(
    client.templates(),
    (error) => isGatewayError(error, 'host_not_ready') && !isUnreachable(error),
  );
});

test('a gateway that accepts and never answers is given up at the deadline', async (context) => {
  const { url } = await serve(context, () => {});
  const client = createAdminClient({ url, timeoutMs: 30 });
  await assert.rejects(
    client.templates(),
    (error: Error) => isUnreachable(error) && /in time/.test(error.message),
  );
});

test("the caller's own signal makes it a cancellation", async (context) => {
  const { client } = await serve(context, () => {});
  await assert.rejects(client.templates({ signal: AbortSignal.timeout(20) }), (error) =>
    isGatewayError(error, 'cancelled'),
  );
});

test('a redirect is not followed, so that the key goes nowhere else', async (context) => {
  const seen: (string | undefined)[] = [];
  const { client } = await serve(context, (request, response) => {
    seen.push(request.url);
    response.writeHead(302, { location: '/elsewhere' }).end();
  });
  await assert.rejects(client.templates());
  assert.deepEqual(seen, ['/v1/templates']);
});

test('a name that would lead to another route is refused before anything is sent', async (context) => {
  const seen: IncomingMessage[] = [];
  const { client } = await serve(context, (request) => void seen.push(request));
  for (const name of ['', '.', '..']) {
    await assert.rejects(client.removeTemplate(name), (error) => isGatewayError(error, 'invalid_request'));
  }
  assert.equal(seen.length, 0);
});

test('a publish streams the archive up and its events down, and ends with the result', async (context) => {
  const { client } = await serve(context, async (request, response) => {
    assert.equal(`${request.method} ${request.url}`, 'POST /v1/templates/hello/versions');
    assert.equal(await text(request), 'archive bytes');
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    const events = [
      { type: 'task', id: 'boot', title: 'Boot', state: 'started' },
      { type: 'output', id: 'boot', text: 'hello' },
      { type: 'result', template: 'hello', version: 'v1', digest, unchanged: false, facts },
    ];
    for (const event of events) response.write(`${JSON.stringify(event)}\n`);
    response.end();
  });
  const archive = Readable.from([Buffer.from('archive '), Buffer.from('bytes')]);
  const types = (await collect(client.publish('hello', archive))).map(({ type }) => type);
  assert.deepEqual(types, ['task', 'output', 'result']);
});

test('an archive that cannot be read is no fault of the gateway', async (context) => {
  const { client } = await serve(context, (request) => void request.resume());
  async function* broken() {
    yield Buffer.from('some');
    throw new Error('EIO');
  }
  await assert.rejects(collect(client.publish('hello', broken())), (error) => {
    assert.ok(isGatewayError(error, 'invalid_request'));
    assert.equal((error.details.cause as Error).message, 'EIO');
    return true;
  });
});

test('a failed build rejects with the output of the guest', async (context) => {
  const problem = toProblem(new GatewayError('build_failed', 'never ready', { output: 'SyntaxError' }));
  const { client } = await serve(context, (_, response) =>
    response.end(`${JSON.stringify({ type: 'error', problem })}\n`),
  );
  await assert.rejects(collect(client.publish('hello', 'archive')), (error) => {
    assert.ok(isGatewayError(error, 'build_failed'));
    assert.equal(error.details.output, 'SyntaxError');
    return true;
  });
});

test('a publish that ends without a result is an error', async (context) => {
  const { client } = await serve(context, (_, response) => void response.end());
  await assert.rejects(collect(client.publish('hello', 'archive')), /without a result/);
});

test('following logs ends when the reader stops, and the gateway sees the connection go', async (context) => {
  const closed = Promise.withResolvers<void>();
  const { client } = await serve(context, (request, response) => {
    assert.equal(request.url, '/v1/logs?template=hello&machine=m1&stream=stdout&stream=stderr&follow=true');
    response.on('close', closed.resolve);
    response.write(`${JSON.stringify({ at: 1, machine: 'm1', stream: 'stdout', text: 'hi' })}\n`);
  });
  const lines = client.logs({
    template: 'hello',
    machine: 'm1',
    streams: ['stdout', 'stderr'],
    follow: true,
  });
  for await (const line of lines) {
    assert.equal(line.text, 'hi');
    break;
  }
  await closed.promise;
});

test('a log stream that breaks off is an error and not a quiet end', async (context) => {
  const { client } = await serve(context, (_, response) => {
    response.write(`${JSON.stringify({ at: 1, machine: 'm1', stream: 'stdout', text: 'hi' })}\n`, () =>
      response.destroy(),
    );
  });
  await assert.rejects(collect(client.logs({ template: 'hello', follow: true })), isUnreachable);
});

test('an address that is no plain http URL is refused', () => {
  for (const url of ['nope', 'ftp://h/', 'http://user:pw@h/', 'http://h/?q=1', 'http://h/#x']) {
    assert.throws(
      () => createAdminClient({ url }),
      (error) => isGatewayError(error, 'invalid_request'),
      url,
    );
  }
  assert.equal(createAdminClient({ url: 'https://h/prefix/' }).url, 'https://h/prefix');
});
