import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import type { BuildEvent } from '../../edge/client/index.ts';
import { GatewayError, isGatewayError, type PublishEvent } from '../../sdk/index.ts';
import { clientOf, newFacts, served, startHarness } from '../testing/harness.ts';
import { rawConnect } from '../testing/raw-client.ts';

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
