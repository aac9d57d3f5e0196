/**
 * `npm run bench:restore`: our restore against a bare VMM's in the same run, and the first correct answer of `hello-python`
 * from each tier. Restores alternate with floors, so that both meet the same noise.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readRestorable } from '../../edge/build/snapshot-host.ts';
import { type ConnectOptions, connectGuest } from '../../edge/guest/index.ts';
import { dataLayout } from '../../edge/index.ts';
import type { Machine } from '../../edge/machine/machine.ts';
import { type Blank, createMachineSource } from '../../edge/machine/source.ts';
import { createQemuVmm } from '../../edge/vmm/qemu/index.ts';
import { newNodeId, systemClock } from '../../sdk/index.ts';
import { loadVersion } from '../../templates/index.ts';
import {
  benchDirectory,
  median,
  publishExample,
  quantile,
  require,
  startBenchNode,
  writeResult,
} from './bench-node.ts';
import { type FloorRecipe, measureFloor } from './restore-floor.ts';

const rounds = Number(process.argv[2] ?? 25);
const root = join(import.meta.dirname, '../..');
const shimPath = join(root, 'edge/native/build/map-private.so');
const signal = new AbortController().signal;

const service = await startBenchNode();
const digest = await publishExample(service, 'hello-python');
await service.close();

const layout = dataLayout(await benchDirectory());
const version = await loadVersion(layout.versions, digest);
const restorable = await readRestorable(digest, version.definition, version.image, version.directory);
const vmm = await createQemuVmm(
  { now: Date.now },
  {
    runDirectory: layout.machines,
    cacheDirectory: layout.cache,
    shimPath,
    accelerator: version.facts.accelerator,
    signal,
  },
);
/** When a restored guest first answered, its clock stepped and its entropy stirred; names and hook come after that. */
let answeredAt = 0;
const deps = {
  vmm,
  node: newNodeId(),
  clock: systemClock,
  async connectGuest(options: ConnectOptions) {
    const channel = await connectGuest(options);
    const resume = channel.resume.bind(channel);
    answeredAt = 0;
    channel.resume = async (...request) => {
      const report = await resume(...request);
      answeredAt ||= performance.now();
      return report;
    };
    return channel;
  },
};
// The floor runs no hook, so the restore that is compared with it runs none either.
const bare = { ...version.definition, hooks: { beforeSnapshot: null, afterRestore: null } };
const bareSource = createMachineSource(deps, { ...restorable, definition: bare });
const source = createMachineSource(deps, restorable);
/** Where a VMM keeps its writable layer, below its machine's directory. */
const machineDisk = 'vmm/disk.qcow2';
const settle = () => new Promise((resolve) => setTimeout(resolve, 300));

async function recipeOf(blank: Blank): Promise<FloorRecipe> {
  const [argv, env] = await Promise.all(
    ['cmdline', 'environ'].map(async (name) =>
      (await readFile(`/proc/${blank.vmm.pid}/${name}`, 'utf8')).split('\0').filter(Boolean),
    ),
  );
  return {
    argv: argv!,
    // Each VMM has a copy of the shim, which is gone with it; the original does the same.
    env: {
      ...Object.fromEntries(env!.map((line) => line.split(/=(.*)/s, 2) as [string, string])),
      LD_PRELOAD: shimPath,
    },
    diskPath: join(blank.vmm.directory.path, machineDisk),
    inherited: [version.memoryPath, version.image.rootPath, version.diskPath],
    statePath: restorable.snapshot.statePath,
    token: restorable.channelToken,
  };
}

async function firstAnswer(machine: Machine): Promise<void> {
  const answer = await machine.http!.probe({ method: 'GET', path: `/?${randomUUID()}` }, { signal });
  if (answer.status !== 200 || !answer.body.includes('"counter"'))
    throw new Error(`wrong answer: ${answer.status} ${answer.body}`);
}

const times = {
  floor: [] as number[],
  restore: [] as number[],
  identity: [] as number[],
  ready: [] as number[],
  restored: [] as number[],
  spawned: [] as number[],
  spawn: [] as number[],
};

for (let round = -2; round < rounds; round++) {
  const isCounted = round >= 0;
  const note = (list: number[], from: number) => isCounted && list.push(performance.now() - from);

  const blank = (await bareSource.spawnBlank({ signal })) as Blank;
  const recipe = await recipeOf(blank);
  await settle();
  let from = performance.now();
  const restored = await bareSource.restore(blank, { signal, awake: true });
  if (isCounted) times.restore.push(answeredAt - from);
  note(times.identity, from);
  await restored.dispose('done');

  // The recipe's overlay is gone with its machine; a fresh blank lends its own.
  const lender = (await bareSource.spawnBlank({ signal })) as Blank;
  const floor = await measureFloor({ ...recipe, diskPath: join(lender.vmm.directory.path, machineDisk) });
  if (isCounted) times.floor.push(floor);
  await lender.dispose();

  const waiting = await source.spawnBlank({ signal });
  await settle();
  from = performance.now();
  const fromBlank = (await source.restore(waiting, { signal, awake: true })) as Machine;
  await firstAnswer(fromBlank);
  note(times.restored, from);
  await fromBlank.dispose('done');

  from = performance.now();
  const fresh = await source.spawnBlank({ signal });
  note(times.spawn, from);
  const spawned = (await source.restore(fresh, { signal, awake: true })) as Machine;
  await firstAnswer(spawned);
  note(times.spawned, from);
  await spawned.dispose('done');

  const parked = (await source.restore(await source.spawnBlank({ signal }), {
    signal,
    awake: false,
  })) as Machine;
  await settle();
  from = performance.now();
  await parked.wake({ signal });
  await firstAnswer(parked);
  note(times.ready, from);
  await parked.dispose('done');
}

const row = (list: readonly number[]) => ({
  p50: median(list),
  p95: quantile(list, 0.95),
  min: Math.min(...list),
});
const figures = {
  rounds,
  accelerator: vmm.verdict.accelerator,
  floorMs: row(times.floor),
  restoreMs: row(times.restore),
  restoreWithIdentityMs: row(times.identity),
  ratio: median(times.restore) / median(times.floor),
  spawnBlankMs: row(times.spawn),
  firstAnswerMs: {
    T0_ready: row(times.ready),
    T1_restored: row(times.restored),
    T2_spawned: row(times.spawned),
  },
};
console.table({
  'floor (bare VMM)': figures.floorMs,
  'restore (answered, clock and entropy done)': figures.restoreMs,
  'restore with hostname and machine id': figures.restoreWithIdentityMs,
  'spawn a blank': figures.spawnBlankMs,
  'T0 ready → first answer': figures.firstAnswerMs.T0_ready,
  'T1 blank → first answer': figures.firstAnswerMs.T1_restored,
  'T2 nothing → first answer': figures.firstAnswerMs.T2_spawned,
});
require('restore / floor, medians', figures.ratio, 1.25, '');
await writeResult('restore', figures);
