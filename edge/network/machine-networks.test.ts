import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { GatewayError, isGatewayError, newMachineId } from '../../sdk/index.ts';
import { runCommand } from './command.ts';
import { createMachineNetworks, type MachineNetworksDeps } from './machine-networks.ts';
import { createFloor } from './rules/floor.ts';
import { parseRules } from './rules/rules.ts';
import { slotPrefix } from './slot/layout.ts';
import { speaker, talk } from './testing/guest-io.ts';
import { cannotRun, createWorld, type World, worldHosts } from './testing/world.ts';

const { shared } = worldHosts;
const owner = { digest: 'd', sandbox: null, ruleSet: 'template x' };

const networksOf = (world: World, changes: Partial<MachineNetworksDeps> = {}) =>
  createMachineNetworks(
    {
      now: Date.now,
      run: runCommand,
      nft: world.nft,
      sockets: world.sockets,
      floor: createFloor({ hostAddresses: [], permittedRanges: [] }),
      resolver: { resolve: () => assert.fail('no name is asked for here') },
      lack: null,
      onError: (error) => assert.fail(String(error)),
      ...changes,
    },
    {
      node: world.node,
      outside: world.outside,
      limits: { connections: 64, newConnectionsPerSecond: 100 },
      bandwidthBitsPerSecond: null,
      ready: 0,
      max: 8,
    },
  );
const slotsOf = async (world: World) =>
  (await readdir('/run/netns')).filter((name) => name.startsWith(slotPrefix(world.node)));

test('a slot is shut until rules are set, tells what it refused, and goes with its machine', {
  skip: cannotRun,
}, async () => {
  await using world = await createWorld();
  using _server = { [Symbol.dispose]: (await speaker(world, shared, 22)).close };
  await using networks = networksOf(world);
  const id = newMachineId(world.node);
  assert.deepEqual(await slotsOf(world), []);
  const { netns, slot: index } = await networks.attach(id);
  assert.deepEqual(await slotsOf(world), [netns]);
  const guest = await world.guest({ index, layout: { netns } });
  assert.equal(await talk(world, guest, shared, 22, 'x'), 'ECONNREFUSED');
  await networks.setRules(id, owner, parseRules({ [shared]: true }));
  assert.equal(await talk(world, guest, shared, 22, 'x'), `hi from ${shared}`);
  assert.equal(await talk(world, guest, worldHosts.other, 22, 'x'), 'ECONNREFUSED');
  const refusals = await networks.refusals({ machine: id });
  assert.deepEqual(
    refusals.map(({ ruleSet, address }) => [ruleSet, address]),
    [['template x', worldHosts.other]],
  );
  await networks.setRules(newMachineId(world.node), owner, parseRules({}));
  await Promise.all([networks.detach(id), networks.detach(id)]);
  assert.deepEqual(await slotsOf(world), []);
});

test('the slot of a machine that lives on is left with its rules, and taken over', {
  skip: cannotRun,
}, async () => {
  await using world = await createWorld();
  using _server = { [Symbol.dispose]: (await speaker(world, shared, 22)).close };
  const id = newMachineId(world.node);
  const gone = newMachineId(world.node);
  const kept: number[] = [];
  let netns = '';
  let guest = '';
  {
    await using networks = networksOf(world);
    const attached = await networks.attach(id);
    netns = attached.netns;
    kept.push(attached.slot, (await networks.attach(gone)).slot);
    guest = await world.guest({ index: attached.slot, layout: { netns } });
    await networks.setRules(id, owner, parseRules({ [shared]: true }));
  }
  assert.equal((await slotsOf(world)).length, 2);
  assert.equal(await talk(world, guest, shared, 22, 'x'), `hi from ${shared}`);
  {
    await using networks = networksOf(world);
    await networks.start(kept);
    networks.takeOver(id, kept[0] ?? -1);
    assert.throws(
      () => networks.takeOver(gone, 77),
      (error) => isGatewayError(error, 'host_not_ready'),
    );
    assert.equal(await talk(world, guest, shared, 22, 'x'), `hi from ${shared}`);
    await networks.forget();
    assert.deepEqual(await slotsOf(world), [netns]);
    await networks.setRules(id, owner, parseRules({}));
    assert.equal(await talk(world, guest, shared, 22, 'x'), 'ECONNREFUSED');
    await networks.detach(id);
  }
  assert.deepEqual(await slotsOf(world), []);
});

test('where the host can not enforce rules nothing is made, and who asks hears why', {
  skip: cannotRun,
}, async () => {
  await using world = await createWorld();
  const lack = new GatewayError('host_not_ready', 'no rights', { component: 'edge' });
  await using networks = networksOf(world, { lack });
  await networks.start([]);
  assert.throws(() => networks.requireSupport(), lack);
  await assert.rejects(networks.attach(newMachineId(world.node)), lack);
  assert.deepEqual(networks.describe(), { lack: 'no rights', permittedRanges: [] });
});
