import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isGatewayError } from '../../../sdk/index.ts';
import { runCommand } from '../command.ts';
import { createFloor } from '../rules/floor.ts';
import { cannotRun, createWorld, inside, type World } from '../testing/world.ts';
import { outsideTable, slotPrefix, tapName, uplinkName } from './layout.ts';
import { openSlotPool } from './pool.ts';
import { prepareSlot, type Slot } from './slot.ts';

const floor = createFloor({ hostAddresses: [], permittedRanges: [] });
const options = (world: World) => ({
  node: world.node,
  outside: world.outside,
  limits: { connections: 64, newConnectionsPerSecond: 100 },
  bandwidthBitsPerSecond: 100_000_000,
  ready: 2,
  max: 4,
});
const slotsOf = async (world: World) =>
  (await readdir('/run/netns')).filter((name) => name.startsWith(slotPrefix(world.node)));

test('a pool hands out prepared slots, refuses beyond its bound, and leaves nothing', {
  skip: cannotRun,
}, async () => {
  await using world = await createWorld();
  {
    await using pool = await openSlotPool(
      { now: Date.now, run: runCommand, nft: world.nft, floor },
      options(world),
    );
    await pool.filled();
    assert.equal(pool.stats().ready, 2);
    const slots = [await pool.acquire(), await pool.acquire(), await pool.acquire(), await pool.acquire()];
    assert.equal(new Set(slots.map(({ layout }) => layout.netns)).size, 4);
    await assert.rejects(pool.acquire(), (error) => isGatewayError(error, 'node_at_capacity'));
    const [first] = slots;
    assert.ok(first !== undefined);
    const shaping = await inside(first.layout.netns, ['tc', 'qdisc', 'show']);
    for (const way of [tapName, uplinkName])
      assert.match(shaping, new RegExp(`qdisc tbf \\S+ dev ${way} root .*rate 100Mbit `));
    await pool.release(first);
    await pool.release(first);
    await pool.filled();
    assert.deepEqual(pool.stats(), { ready: 1, used: 3, preparing: 0, failures: 0 });
  }
  assert.deepEqual(await slotsOf(world), []);
  assert.equal(
    (await inside(world.outside, ['nft', 'list', 'tables'])).includes(outsideTable(world.node)),
    false,
  );
});

test('200 slots are handed out and returned, and nothing of them is left', { skip: cannotRun }, async () => {
  await using world = await createWorld();
  const uplinks = async () =>
    (await inside(world.outside, ['ip', '-brief', 'link']))
      .split('\n')
      .filter((line) => line.startsWith(slotPrefix(world.node)));
  {
    await using pool = await openSlotPool(
      { now: Date.now, run: runCommand, nft: world.nft, floor },
      { ...options(world), ready: 4, max: 256 },
    );
    const slots: Slot[] = [];
    while (slots.length < 200) slots.push(await pool.acquire());
    assert.equal(new Set(slots.map(({ layout }) => layout.netns)).size, 200);
    assert.ok((await uplinks()).length >= 200);
    await Promise.all(slots.map((slot) => pool.release(slot)));
    assert.equal(pool.stats().used, 0);
  }
  assert.deepEqual(await slotsOf(world), []);
  // The kernel clears links away a moment after their namespace.
  for (let looks = 0; looks < 200 && (await uplinks()).length > 0; looks += 1) await sleep(50);
  assert.deepEqual(await uplinks(), []);
});

test('slots of an edge that was killed are reclaimed by the next one', { skip: cannotRun }, async () => {
  await using world = await createWorld();
  await prepareSlot({ now: Date.now, run: runCommand, nft: world.nft, floor }, options(world), 0);
  await prepareSlot({ now: Date.now, run: runCommand, nft: world.nft, floor }, options(world), 35);
  assert.equal((await slotsOf(world)).length, 2);
  {
    await using pool = await openSlotPool(
      { now: Date.now, run: runCommand, nft: world.nft, floor },
      { ...options(world), ready: 0 },
    );
    await pool.filled();
    assert.deepEqual(await slotsOf(world), []);
  }
});

test('a slot that can not be prepared is removed and its failure told', { skip: cannotRun }, async () => {
  await using world = await createWorld();
  const run: typeof runCommand = async (argv, rest) => {
    if (argv[0] === 'sh') throw new Error('refused by test');
    return await runCommand(argv, rest);
  };
  {
    await using pool = await openSlotPool({ now: Date.now, run, nft: world.nft, floor }, options(world));
    await assert.rejects(pool.acquire(), /refused by test/);
    assert.ok(pool.stats().failures >= 1);
  }
  assert.deepEqual(await slotsOf(world), []);
});
