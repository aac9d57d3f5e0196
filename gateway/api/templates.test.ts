import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import { clientOf, publish, served, startHarness } from '../testing/harness.ts';

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
