import assert from 'node:assert/strict';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createAdminClient } from '../sdk/index.ts';
import { leaksOf, makeDataDirectory, publishDrill, spawnUp, vmmsOf } from './testing/drill-node.ts';

let dataDirectory: string;

before(async () => {
  dataDirectory = await makeDataDirectory();
});
after(async () => {
  assert.deepEqual(await leaksOf(dataDirectory), []);
  await rm(dataDirectory, { recursive: true, force: true });
});

async function warm(service: { readonly url: string; readonly apiKey: string }) {
  const client = createAdminClient(service);
  const deadline = Date.now() + 60_000;
  while ((await client.pools()).every(({ ready }) => ready === 0)) {
    assert.ok(Date.now() < deadline, 'machines get warm');
    await sleep(100);
  }
  return client;
}

test('killed in the middle of a burst, it starts again without stray machines and answers from the same snapshot', async () => {
  const before = await spawnUp(dataDirectory);
  const client = createAdminClient(before);
  const published = await publishDrill(client);
  await warm(before);
  const burst = Array.from({ length: 10 }, () =>
    client.invoke('drill').then(
      ({ response }) => response.text(),
      () => 'lost',
    ),
  );
  await sleep(30);
  before.process.kill('SIGKILL');
  await once(before.process, 'exit');
  await Promise.all(burst);
  const orphans = await vmmsOf(dataDirectory);
  assert.ok(orphans.length > 0, 'VMMs outlive the edge that started them');

  const again = await spawnUp(dataDirectory);
  try {
    const left = new Set(await vmmsOf(dataDirectory));
    assert.deepEqual(
      orphans.filter((pid) => left.has(pid)),
      [],
      'leftovers are removed before it serves',
    );
    const { response, start } = await (await warm(again)).invoke('drill');
    assert.equal(response.status, 200);
    assert.equal(start?.digest, published.digest);
    const { counter } = (await response.json()) as { counter: number };
    assert.ok(counter > 5, `counter is ${counter}`);
  } finally {
    again.process.kill('SIGTERM');
    await once(again.process, 'exit');
  }
  assert.equal(again.process.exitCode, 0, 'it stops cleanly when asked');
  assert.deepEqual(await vmmsOf(dataDirectory), []);
});

test('killed while it builds, it leaves nothing half-published', async () => {
  const building = await spawnUp(dataDirectory);
  const publishing = publishDrill(createAdminClient(building), { env: { MARKER: 'never' } }).catch(
    () => null,
  );
  const deadline = Date.now() + 30_000;
  while ((await vmmsOf(dataDirectory)).length < 4 && Date.now() < deadline) await sleep(100);
  building.process.kill('SIGKILL');
  await once(building.process, 'exit');
  assert.equal(await publishing, null);

  const again = await spawnUp(dataDirectory);
  try {
    const client = await warm(again);
    assert.equal((await client.template('drill')).history.length, 1);
    assert.deepEqual(
      (await leaksOf(dataDirectory)).filter((leak) => leak.startsWith('versions/')),
      [],
    );
  } finally {
    again.process.kill('SIGTERM');
    await once(again.process, 'exit');
  }
});

test('two edges never share a data directory', async () => {
  const first = await spawnUp(dataDirectory);
  try {
    await assert.rejects(spawnUp(dataDirectory), /another edge is using/);
  } finally {
    first.process.kill('SIGTERM');
    await once(first.process, 'exit');
  }
});
