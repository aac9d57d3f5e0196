import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CreatedSandbox, type SandboxInfo, type SandboxNetwork, Snapgate } from '../../sdk/index.ts';
import { startSandboxHarness } from '../testing/sandbox-harness.ts';

test('the network rules of a sandbox are read, replaced and given back, by the API and the SDK', async () => {
  await using h = await startSandboxHarness();
  const { id } = await h.post<CreatedSandbox>('/v1/sandboxes', { template: 'open' });
  const path = `/v1/sandboxes/${id}/network`;
  const rules = { 'a.example.com': true };
  assert.equal((await h.get<SandboxNetwork>(path)).own, null);
  const changed = await h.send<SandboxInfo>('PATCH', path, { rules });
  assert.deepEqual(changed.network, { kind: 'native', rules });
  const sandbox = await new Snapgate({ url: h.url, apiKey: h.key }).sandboxes.get(id);
  assert.deepEqual((await sandbox.network()).own, { kind: 'native', rules });
  assert.equal((await sandbox.setNetwork(null)).network, undefined);
  assert.equal((await sandbox.setNetwork({ pypi: true })).network?.kind, 'native');
});

test('rules that are none are refused before the node hears of them, and a sandbox’s own token opens nothing', async () => {
  await using h = await startSandboxHarness();
  const { id, token } = await h.post<CreatedSandbox>('/v1/sandboxes', { template: 'open' });
  const path = `/v1/sandboxes/${id}/network`;
  for (const body of [{}, { rules: { a: 'yes' } }, { rules: [] }, { allow: ['x'] }])
    assert.equal((await h.raw('PATCH', path, body)).status, 400);
  const answer = await fetch(`${h.url}${path}`, { headers: { 'x-api-key': token } });
  assert.equal(answer.status, 401);
});
