import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fakeGateway, run } from './testing/terminal.ts';

const key = { id: 'k1', name: 'ci', prefix: 'e2b_12ab', createdAt: 0, lastUsedAt: null };

test('keys create puts the key alone on stdout, so that it can be captured', async (context) => {
  const { env, seen } = await fakeGateway(context, { 'POST /v1/keys': { ...key, key: 'e2b_12abcdef' } });
  const { code, stdout, stderr } = await run(context, ['keys', 'create', 'ci'], { env });
  assert.equal(code, 0);
  assert.equal(stdout, 'e2b_12abcdef\n');
  assert.match(stderr, /not shown again/);
  assert.equal(seen[0]?.body, '{"name":"ci"}');
  assert.equal(seen[0]?.headers.authorization, 'Bearer e2b_test');
});

const limited = { requestsToday: 7, limits: { requestsPerDay: 9, ratePerSecond: 0.5 } };

test('keys create passes limits on', async (context) => {
  const { env, seen } = await fakeGateway(context, { 'POST /v1/keys': { ...key, key: 'e2b_12abcdef' } });
  await run(context, ['keys', 'create', 'ci', '--per-day', '100'], { env });
  assert.equal(seen[0]?.body, '{"name":"ci","limits":{"ratePerSecond":null,"requestsPerDay":100}}');
});

test('keys list shows what a key is for and when it was used', async (context) => {
  const { env } = await fakeGateway(context, {
    'GET /v1/keys': { items: [key, { ...key, id: 'k2', lastUsedAt: 86_400_000, ...limited }] },
  });
  const { stdout } = await run(context, ['keys', 'list'], { env });
  assert.match(stdout, /k1 +ci +e2b_12ab… +1970-01-01 00:00:00 +never +- +- +-\n/);
  assert.match(stdout, /k2 +ci +e2b_12ab… +1970-01-01 00:00:00 +1970-01-02 00:00:00 +7 +9 +0\.5\n/);
  const json = await run(context, ['keys', 'ls', '--json'], { env });
  assert.equal(JSON.parse(json.stdout).length, 2);
});

test('keys rm withdraws by id', async (context) => {
  const { env, seen } = await fakeGateway(context, {
    'DELETE /v1/keys/k1': (response: import('node:http').ServerResponse) => response.writeHead(204).end(),
  });
  const { code } = await run(context, ['keys', 'rm', 'k1'], { env });
  assert.equal(code, 0);
  assert.deepEqual(
    seen.map(({ route }) => route),
    ['DELETE /v1/keys/k1'],
  );
});
