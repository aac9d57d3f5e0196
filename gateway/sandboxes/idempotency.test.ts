import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { type CreatedSandbox, GatewayError, isGatewayError, systemClock } from '../../sdk/index.ts';
import { startSandboxHarness } from '../testing/sandbox-harness.ts';
import { createIdempotencyStore, type KeyedRequest } from './idempotency.ts';

const request: KeyedRequest = { caller: 'e2b_secret', key: 'k', route: 'POST /v1/x', body: '{}' };
const answer = (body: string, isFinal = true) => ({
  status: 201,
  contentType: 'text/plain',
  body,
  isFinal,
});

function open() {
  const db = new DatabaseSync(':memory:');
  let now = 1_000_000_000_000;
  const clock = { ...systemClock, now: () => now };
  const pass = (ms: number) => {
    now += ms;
  };
  return { db, pass, reopen: () => createIdempotencyStore(db, { clock }) };
}

test('the same request does its work once, and its answer outlives the process', async () => {
  const { reopen } = open();
  let runs = 0;
  const work = async () => answer(`run ${++runs}`);
  const first = await reopen().run(request, work);
  const second = await reopen().run(request, work);
  assert.deepEqual([first.body, first.isReplay], ['run 1', false]);
  assert.deepEqual([second.body, second.isReplay, second.status], ['run 1', true, 201]);
});

test('requests at the same time share one run, also when it fails', async () => {
  const store = open().reopen();
  const gate = Promise.withResolvers<void>();
  let runs = 0;
  const work = async () => {
    runs += 1;
    await gate.promise;
    throw new GatewayError('restore_failed', 'no');
  };
  const both = [store.run(request, work), store.run(request, work)];
  gate.resolve();
  const settled = await Promise.allSettled(both);
  assert.deepEqual([runs, settled.map(({ status }) => status)], [1, ['rejected', 'rejected']]);
  assert.equal((await store.run(request, async () => answer('later'))).body, 'later');
});

test('another body or route under the same key is a conflict, another caller is not', async () => {
  const store = open().reopen();
  const work = async () => answer('done');
  await store.run(request, work);
  for (const other of [{ body: '{"a":1}' }, { route: 'POST /v1/y' }]) {
    await assert.rejects(store.run({ ...request, ...other }, work), (error) =>
      isGatewayError(error, 'conflict'),
    );
  }
  assert.equal((await store.run({ ...request, caller: 'e2b_other' }, work)).isReplay, false);
});

test('an answer that only says "not now" leaves the key free, and a kept one expires after a day', async () => {
  const { pass, reopen } = open();
  const store = reopen();
  await store.run(request, async () => answer('busy', false));
  assert.equal((await store.run(request, async () => answer('done'))).body, 'done');
  pass(24 * 3_600_000 - 1);
  assert.equal((await store.run(request, async () => answer('again'))).body, 'done');
  pass(1);
  assert.equal((await store.run(request, async () => answer('again'))).body, 'again');
});

test('a request that a stop of the gateway cut off is not done again', async () => {
  const { reopen } = open();
  void reopen().run(request, () => new Promise<never>(() => {}));
  await assert.rejects(
    reopen().run(request, async () => answer('twice')),
    (error) => isGatewayError(error, 'conflict') && /cut off/.test(error.message),
  );
});

test('the oldest answers make room when there are too many bytes', async () => {
  const { db } = open();
  let now = 1;
  const clock = { ...systemClock, now: () => now++ };
  const store = createIdempotencyStore(db, { clock }, { maxBytes: 2_500 });
  for (const key of ['a', 'b', 'c'])
    await store.run({ ...request, key }, async () => answer('x'.repeat(1_000)));
  const again = (key: string) => store.run({ ...request, key }, async () => answer('new'));
  assert.equal((await again('c')).isReplay, true);
  assert.equal((await again('b')).isReplay, true);
  assert.equal((await again('a')).isReplay, false);
});

test('a stolen database shows neither keys, bodies nor answers', async () => {
  const { db, reopen } = open();
  await reopen().run({ ...request, body: 'MYBODY' }, async () => answer('MYTOKEN'));
  const row = db.prepare('SELECT * FROM idempotent_answers').get() as Record<string, unknown>;
  const text = Object.values(row)
    .map((value) => (value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : String(value)))
    .join();
  for (const secret of ['MYTOKEN', 'MYBODY', 'e2b_secret']) assert.ok(!text.includes(secret));
});

test('create, fork, snapshot and exec under one key happen once over HTTP', async () => {
  await using h = await startSandboxHarness();
  const key = { 'idempotency-key': 'first' };
  const made = await Promise.all(
    [1, 2, 3].map(() => h.raw('POST', '/v1/sandboxes', { template: 'open' }, key)),
  );
  const bodies = (await Promise.all(made.map((one) => one.json()))) as CreatedSandbox[];
  assert.equal(new Set(bodies.map(({ id, token }) => id + token)).size, 1);
  assert.deepEqual(made.map((one) => one.headers.get('x-snapgate-replayed')).sort(), [null, 'true', 'true']);
  const other = await h.raw('POST', '/v1/sandboxes', { template: 'closed' }, key);
  assert.equal(other.status, 409);
  const wrong = await h.raw('POST', '/v1/sandboxes', { template: 'none' }, { 'idempotency-key': 'second' });
  assert.equal(wrong.status, 404);
  const right = await h.raw('POST', '/v1/sandboxes', { template: 'open' }, { 'idempotency-key': 'second' });
  assert.equal(right.status, 201);
  const base = `/v1/sandboxes/${bodies[0]!.id}`;
  for (const [path, body] of [
    ['fork', { count: 2 }],
    ['snapshots', {}],
    ['processes', { argv: ['/bin/true'] }],
  ] as const) {
    const both = [1, 2].map(() => h.raw('POST', `${base}/${path}`, body, { 'idempotency-key': path }));
    const [one, two] = await Promise.all((await Promise.all(both)).map((answered) => answered.text()));
    assert.equal(one, two);
  }
  assert.deepEqual(h.sandboxes.asked, ['create', 'create', 'fork', 'snapshot']);
});
