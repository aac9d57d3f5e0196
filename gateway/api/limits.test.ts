import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAdminClient, isGatewayError } from '../../sdk/index.ts';
import { clientOf, publish, startHarness } from '../testing/harness.ts';

test('a template past its rate answers 429 with the limit, the knob and when to come back', async () => {
  await using h = await startHarness();
  publish(h.registry, 'slow', { public: true, admission: { ratePerSecond: 0.5 } });
  assert.equal((await fetch(`${h.url}/fn/slow/`)).status, 200);
  const refused = await fetch(`${h.url}/fn/slow/`);
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get('retry-after'), '2');
  assert.equal(refused.headers.get('x-snapgate-error'), 'gateway/rate_limited');
  const problem = (await refused.json()) as Record<string, unknown>;
  assert.deepEqual([problem.limit, problem.knob], [0.5, 'admission.ratePerSecond']);
  assert.equal((await fetch(`${h.url}/fn/open/`)).status, 200, 'others are not held up');
});

test('a key past its quota is refused at every door that takes a machine, and may still look around', async () => {
  await using h = await startHarness();
  const { key } = await clientOf(h).createKey('few', { limits: { requestsPerDay: 1 } });
  const headers = { 'x-api-key': key };
  assert.equal((await fetch(`${h.url}/fn/closed/`, { headers })).status, 200);
  const refused = await fetch(`${h.url}/fn/closed/`, { headers });
  assert.deepEqual(
    [refused.status, refused.headers.get('x-snapgate-error')],
    [429, 'gateway/quota_exceeded'],
  );
  const sandbox = await fetch(`${h.url}/v1/sandboxes`, { method: 'POST', headers, body: '{}' });
  assert.equal(sandbox.status, 429);
  const limits = await createAdminClient({ url: h.url, apiKey: key }).limits();
  const ofKey = limits.filter(({ scope }) => scope === 'key');
  assert.deepEqual(
    ofKey.map(({ knob, limit, used }) => [knob, limit, used]),
    [
      ['key.limits.ratePerSecond', null, null],
      ['key.limits.requestsPerDay', 1, 1],
    ],
  );
  assert.ok(limits.some(({ scope, knob }) => scope === 'node' && knob === 'maxMachines'));
});

test('limits of a key that make no sense are refused', async () => {
  await using h = await startHarness();
  await assert.rejects(clientOf(h).createKey('none', { limits: { requestsPerDay: 0 } }), (error) =>
    isGatewayError(error, 'invalid_request'),
  );
});
