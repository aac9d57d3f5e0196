/**
 * `npm run bench:network`: what a network card and its rules cost. Slots are handed out; the same template is restored with
 * and without a card, in turns; a guest moves bytes to and from a host in a namespace through ten rules, a thousand, and none,
 * in turns as well, and each is compared with what came right before or after it.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readRestorable } from '../../edge/build/snapshot-host.ts';
import { connectGuest } from '../../edge/guest/index.ts';
import { dataLayout } from '../../edge/index.ts';
import { type Blank, createMachineSource } from '../../edge/machine/source.ts';
import { versionNetworks } from '../../edge/machine/version-network.ts';
import { inNamespace, runCommand } from '../../edge/network/command.ts';
import { networkConfigSchema, openNetworks, withNetworkCards } from '../../edge/network/index.ts';
import { createFloor } from '../../edge/network/rules/floor.ts';
import { openSlotPool } from '../../edge/network/slot/pool.ts';
import { openNetworkedNode, worldHosts } from '../../edge/network/testing/networked-node.ts';
import { createWorld } from '../../edge/network/testing/world.ts';
import { createQemuVmm } from '../../edge/vmm/qemu/index.ts';
import { newNodeId, type SandboxId, systemClock, type VersionDigest } from '../../sdk/index.ts';
import { loadVersion } from '../../templates/index.ts';
import { shimPath } from './bare-vmm.ts';
import {
  benchDirectory,
  median,
  publishAndClose,
  quantile,
  require,
  root,
  writeResult,
} from './bench-node.ts';

const rounds = Number(process.argv[2] ?? 15);
const signal = new AbortController().signal;
const nativePath = join(root, 'edge/network/native/build');
const row = (list: readonly number[]) => ({
  p50: median(list),
  p95: quantile(list, 0.95),
  min: Math.min(...list),
});
const settle = () => new Promise((resolve) => setTimeout(resolve, 300));
const timed = async <T>(list: number[], work: () => Promise<T>): Promise<T> => {
  const from = performance.now();
  const result = await work();
  list.push(performance.now() - from);
  return result;
};

async function handOut() {
  await using world = await createWorld();
  const floor = createFloor({ hostAddresses: [], permittedRanges: [] });
  const limits = { connections: 1024, newConnectionsPerSecond: 200 };
  const options = { node: world.node, outside: world.outside, limits, bandwidthBitsPerSecond: null };
  await using pool = await openSlotPool(
    { now: Date.now, run: runCommand, nft: world.nft, floor },
    { ...options, ready: 16, max: 64 },
  );
  const acquire: number[] = [];
  const prepare: number[] = [];
  for (let round = 0; round < rounds; round++) {
    await pool.filled();
    const slot = await timed(acquire, () => pool.acquire());
    await timed(prepare, () => pool.filled());
    await pool.release(slot);
  }
  return { handOutMs: row(acquire), prepareMs: row(prepare) };
}

async function restores() {
  await using world = await createWorld();
  const digests = await publishAndClose(
    { example: 'hello-python' },
    { example: 'hello-python', changes: { name: 'hello-networked', network: { 'example.com': true } } },
  );
  const layout = dataLayout(await benchDirectory());
  const onError = (error: unknown) => console.error(error);
  await using networks = await openNetworks(
    { node: world.node, now: Date.now, onError, nativePath, outside: world.outside },
    networkConfigSchema.parse({ readySlots: 2 }),
  );
  const bare = await createQemuVmm(
    { now: Date.now },
    {
      ...{ runDirectory: layout.machines, cacheDirectory: layout.cache, shimPath, signal },
      tapLauncherPath: join(nativePath, 'tap-launch'),
    },
  );
  const vmm = withNetworkCards({ vmm: bare, networks, onError });
  const deps = { vmm, node: newNodeId(), clock: systemClock, connectGuest };
  const sourceOf = async (digest: VersionDigest) => {
    const { definition, image, directory } = await loadVersion(layout.versions, digest);
    const version = await readRestorable(digest, definition, image, directory);
    return createMachineSource({ ...deps, enterNetwork: versionNetworks(networks) }, version);
  };
  const kinds = [
    { source: await sourceOf(digests[0]!), restore: [] as number[], spawn: [] as number[] },
    { source: await sourceOf(digests[1]!), restore: [] as number[], spawn: [] as number[] },
  ] as const;
  for (let round = -2; round < rounds; round++) {
    for (const { source, restore, spawn } of kinds) {
      const from = performance.now();
      const blank = (await source.spawnBlank({ signal })) as Blank;
      if (round >= 0) spawn.push(performance.now() - from);
      await settle();
      const at = performance.now();
      const machine = await source.restore(blank, { signal, awake: true });
      if (round >= 0) restore.push(performance.now() - at);
      await machine.dispose('done');
    }
  }
  const [without, card] = kinds;
  return {
    restoreMs: { without: row(without.restore), with: row(card.restore) },
    spawnBlankMs: { without: row(without.spawn), with: row(card.spawn) },
    // Of neighbours: on a busy machine two medians differ by more than a card costs.
    ratio: median(card.restore.map((ms, round) => ms / without.restore[round]!)),
  };
}

const { shared, other } = worldHosts;
const pullBytes = 8 * 2 ** 20;
const pushBytes = 4 * 2 ** 20;
/** Nothing but what makes the way back found: the same path without rules. */
const bareTable = `table inet slot
delete table inet slot
table netdev slot
delete table netdev slot
table inet slot {
  chain postrouting {
    type nat hook postrouting priority srcnat
    oifname "up0" masquerade
  }
}
`;
/** Address rules beside the one that matters, each of its own. */
const manyRules = (count: number) =>
  Object.fromEntries(
    Array.from({ length: count - 1 }, (_, index) => [`93.100.${index >> 8}.${index & 255}`, true]),
  );

async function throughput() {
  // No limit but the guest's own speed.
  await using node = await openNetworkedNode({ config: { newConnectionsPerSecond: 65_536 } });
  await node.serve('tcp', shared, 9000);
  await node.serve('tls', other, 443);
  node.zone.set('a.example.com', { addresses: [other], ttl: 3600 });
  const { id } = await node.create();
  const netns = await namespaceOf(node.dataDirectory, id, await node.slots());
  const kinds = {
    none: async () => void (await runCommand(inNamespace(netns, ['nft', '-f', '-']), { input: bareTable })),
    ten: () => setRules(10),
    thousand: () => setRules(1000),
  };
  const setRules = async (count: number) => {
    // Rules that are the same are not put in force again, and the bare table must go.
    await node.edge.sandboxes.setNetwork(id as SandboxId, { kind: 'native', rules: {} });
    const rules = { ...manyRules(count), [shared]: true };
    await node.edge.sandboxes.setNetwork(id as SandboxId, { kind: 'native', rules });
  };
  type Kind = keyof typeof kinds;
  const figures = (): Record<Kind, number[]> => ({ none: [], ten: [], thousand: [] });
  const pull = figures();
  const push = figures();
  const connect = figures();
  const steps = [
    { do: 'pull', address: shared, port: 9000, bytes: pullBytes },
    { do: 'push', address: shared, port: 9000, bytes: pushBytes },
    { do: 'connect', address: shared, port: 9000, count: 20 },
  ];
  const names = Object.keys(kinds) as Kind[];
  for (let round = -1; round < rounds * 2; round++) {
    // Each goes first as often as the others.
    for (const index of names.keys()) {
      const kind = names[(index + round + names.length) % names.length]!;
      await kinds[kind]();
      const [pulled, pushed, connected] = (await node.probe(id, steps)) as [number, number, number];
      if (round < 0) continue;
      pull[kind].push(pulled / 2 ** 20);
      push[kind].push(pushed / 2 ** 20);
      connect[kind].push(connected);
    }
  }
  const medians = (all: Record<Kind, number[]>) =>
    Object.fromEntries(names.map((name) => [name, median(all[name])])) as Record<Kind, number>;
  /** Within each round, since the machine's other work changes from round to round. */
  const ratio = (all: Record<Kind, number[]>, a: Kind, b: Kind) =>
    median(all[a].map((value, round) => value / all[b][round]!));
  return {
    pullMiBPerSecond: medians(pull),
    pushMiBPerSecond: medians(push),
    connectMs: medians(connect),
    ratios: {
      pullTenToNone: ratio(pull, 'ten', 'none'),
      pushTenToNone: ratio(push, 'ten', 'none'),
      pullThousandToTen: ratio(pull, 'thousand', 'ten'),
      connectThousandToTen: ratio(connect, 'thousand', 'ten'),
    },
  };
}

/** The slot of a sandbox's machine, as a later edge would find it. */
async function namespaceOf(directory: string, id: string, slots: readonly string[]): Promise<string> {
  const text = await readFile(join(directory, 'machines', id, 'network.json'), 'utf8');
  const { slot } = JSON.parse(text) as { slot: number };
  const found = slots.find((name) => name.endsWith(`x${slot.toString(36)}`));
  if (found === undefined) throw new Error('the slot of the sandbox was not found');
  return found;
}

const slots = await handOut();
const restored = await restores();
const moved = await throughput();
const figures = { rounds, ...slots, ...restored, ...moved };
console.table({
  'hand out a slot (ms)': slots.handOutMs,
  'prepare a slot (ms)': slots.prepareMs,
  'restore without a card (ms)': restored.restoreMs.without,
  'restore with a card (ms)': restored.restoreMs.with,
  'spawn a blank without a card (ms)': restored.spawnBlankMs.without,
  'spawn a blank with a card (ms)': restored.spawnBlankMs.with,
});
console.table({
  'guest receives (MiB/s)': moved.pullMiBPerSecond,
  'guest sends (MiB/s)': moved.pushMiBPerSecond,
  'guest connects (ms)': moved.connectMs,
});
require('hand-out of a slot, median', slots.handOutMs.p50, 1, ' ms');
require('restore with a card / without, median of neighbours', restored.ratio, 1.15, '');
const { ratios } = moved;
require('received through rules / without', ratios.pullTenToNone, 0.9, '', false);
require('sent through rules / without', ratios.pushTenToNone, 0.9, '', false);
require('connecting under 1,000 rules / under 10', ratios.connectThousandToTen, 1.05, '');
require('received under 1,000 rules / under 10', ratios.pullThousandToTen, 0.95, '', false);
await writeResult('network', figures);
