/**
 * `npm run bench:restore`: our restore against a bare VMM's in the same run, and the first correct answer of `hello-python`
 * from each tier. Restores alternate with floors, so that both meet the same noise.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ConnectOptions, connectGuest } from '../../edge/guest/index.ts';
import { dataLayout } from '../../edge/index.ts';
import type { Machine } from '../../edge/machine/machine.ts';
import type { Blank } from '../../edge/machine/source.ts';
import { openBareVmm, shimPath } from './bare-vmm.ts';
import { benchDirectory, median, publishAndClose, quantile, require, writeResult } from './bench-node.ts';
import { type FloorRecipe, measureFloor } from './restore-floor.ts';

const rounds = Number(process.argv[2] ?? 25);
const signal = new AbortController().signal;

const [digest] = await publishAndClose({ example: 'hello-python' });
const layout = dataLayout(await benchDirectory());
const bareVmm = await openBareVmm(digest!, { layout, runDirectory: layout.machines, signal });
const { version, restorable } = bareVmm;
/** When a restored guest had greeted us, its clock stepped and its entropy stirred; when it had answered a first request. */
let greetedAt = 0;
let answeredAt = 0;
/** When it had its names and token, and its clock was checked. */
let namedAt = 0;
const noting = {
  async connectGuest(options: ConnectOptions) {
    const channel = await connectGuest(options);
    greetedAt = performance.now();
    const resume = channel.resume.bind(channel);
    channel.resume = async (...request) => {
      const report = await resume(...request);
      namedAt = performance.now();
      return report;
    };
    return channel;
  },
};
/** Asks what the floor asks first. */
const pinging = {
  async connectGuest(options: ConnectOptions) {
    const channel = await noting.connectGuest(options);
    await channel.ping({ signal });
    answeredAt = performance.now();
    return channel;
  },
};
// The floor runs no hook, so the restore that is compared with it runs none either.
const withoutHooks = { ...version.definition, hooks: { beforeSnapshot: null, afterRestore: null } };
const bareSource = bareVmm.source({ definition: withoutHooks }, pinging);
const source = bareVmm.source({}, noting);
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
  floorGreeted: [] as number[],
  floorAnswered: [] as number[],
  greeted: [] as number[],
  answered: [] as number[],
  named: [] as number[],
  ready: [] as number[],
  restored: [] as number[],
  spawned: [] as number[],
  spawn: [] as number[],
};

for (let round = -2; round < rounds; round++) {
  const isCounted = round >= 0;
  const note = (list: number[], from: number) => isCounted && list.push(performance.now() - from);

  const blank = await bareSource.spawnBlank();
  const recipe = await recipeOf(blank);
  await settle();
  let from = performance.now();
  const restored = await bareSource.restore(blank);
  if (isCounted) times.greeted.push(greetedAt - from);
  if (isCounted) times.answered.push(answeredAt - from);
  await restored.dispose('done');

  // The recipe's overlay is gone with its machine; a fresh blank lends its own.
  const lender = await bareSource.spawnBlank();
  const floor = await measureFloor({ ...recipe, diskPath: join(lender.vmm.directory.path, machineDisk) });
  if (isCounted) times.floorGreeted.push(floor.greetedMs);
  if (isCounted) times.floorAnswered.push(floor.answeredMs);
  await lender.dispose();

  const waiting = await source.spawnBlank();
  await settle();
  from = performance.now();
  const fromBlank = await source.restore(waiting);
  if (isCounted) times.named.push(namedAt - from);
  await firstAnswer(fromBlank);
  note(times.restored, from);
  await fromBlank.dispose('done');

  from = performance.now();
  const fresh = await source.spawnBlank();
  note(times.spawn, from);
  const spawned = await source.restore(fresh);
  await firstAnswer(spawned);
  note(times.spawned, from);
  await spawned.dispose('done');

  const parked = await source.restore(await source.spawnBlank(), { awake: false });
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
  accelerator: bareVmm.verdict.accelerator,
  floorGreetedMs: row(times.floorGreeted),
  floorAnsweredMs: row(times.floorAnswered),
  greetedMs: row(times.greeted),
  answeredMs: row(times.answered),
  namedMs: row(times.named),
  greetedRatio: median(times.greeted) / median(times.floorGreeted),
  answeredRatio: median(times.answered) / median(times.floorAnswered),
  spawnBlankMs: row(times.spawn),
  firstAnswerMs: {
    T0_ready: row(times.ready),
    T1_restored: row(times.restored),
    T2_spawned: row(times.spawned),
  },
};
console.table({
  'floor: bare VMM, agent has greeted': figures.floorGreetedMs,
  'floor: bare VMM, first request answered': figures.floorAnsweredMs,
  'restore: agent has greeted, clock and entropy done': figures.greetedMs,
  'restore: the same, first request answered': figures.answeredMs,
  'restore: clock, entropy and names done': figures.namedMs,
  'spawn a blank': figures.spawnBlankMs,
  'T0 ready → first answer': figures.firstAnswerMs.T0_ready,
  'T1 blank → first answer': figures.firstAnswerMs.T1_restored,
  'T2 nothing → first answer': figures.firstAnswerMs.T2_spawned,
});
require('restore / floor to the greeting, medians', figures.greetedRatio, 1.25, '');
require('restore / floor to the first answer, medians', figures.answeredRatio, 1.25, '');
await writeResult('restore', figures);
