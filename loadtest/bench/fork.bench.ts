/**
 * `npm run bench:fork [rounds]`: what a fork costs its source and its children, against the bare steps on a bare VMM in the same run;
 * what pause and resume cost. Forks alternate with bare rounds, so that both meet the same noise.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import pino from 'pino';
import { dataLayout } from '../../edge/index.ts';
import { openEdge } from '../../edge/main.ts';
import { createPageCopier, findRamMapping } from '../../edge/memory/index.ts';
import {
  createSandboxRequestSchema,
  type SandboxId,
  type TemplateName,
  type VersionDigest,
} from '../../sdk/index.ts';
import { openBareVmm } from './bare-vmm.ts';
import {
  benchDirectory,
  median,
  publishAndClose,
  quantile,
  require,
  root,
  writeResult,
} from './bench-node.ts';

const rounds = Number(process.argv[2] ?? 12);
const signal = new AbortController().signal;
const requestsBefore = 100;
/** With so few rounds it is seen that all works, and no more. */
const isQuick = rounds < 4;
const counts = isQuick ? [1, 4] : [1, 4, 16];
const most = Math.max(...counts);
const suspensions = isQuick ? { sizes: [0, 16], rounds: 2 } : { sizes: [0, 16, 64], rounds: 4 };
/** What the process that holds ballast dirties beside it. */
const interpreterMiB = 4;
const mib = (bytes: number) => bytes / 2 ** 20;

const resources = { vcpus: 1, memoryMiB: 256, diskMiB: 1024 };
const pool = { ready: 1, blank: 0, max: 40 };
const [small, large] = (await publishAndClose(
  { example: 'hello-python', changes: { pool } },
  {
    example: 'hello-python',
    changes: { name: 'hello-python-large', pool, resources: { ...resources, memoryMiB: 1024 } },
  },
)) as [VersionDigest, VersionDigest];

const dataDirectory = await benchDirectory();
const layout = dataLayout(dataDirectory);
const edge = await openEdge(
  { log: pino({ level: 'error' }), onStep: () => {}, signal },
  { dataDirectory, forkBlanks: most },
);
const serve = (digest: VersionDigest, template: string) => ({
  digest,
  template: template as TemplateName,
  version: 'v1',
});
await edge.setServing([serve(small, 'hello-python'), serve(large, 'hello-python-large')]);
const { sandboxes } = edge;
const settle = (ms = 300) => new Promise((resolve) => setTimeout(resolve, ms));

async function create(digest: VersionDigest, template: string): Promise<SandboxId> {
  const made = await sandboxes.create(
    { kind: 'version', digest, template, version: 'v1' },
    createSandboxRequestSchema.parse({ deadlineMs: 3_600_000 }),
    { signal },
  );
  return made.id as SandboxId;
}

/** The shortest command there is, to its end. */
async function command(id: SandboxId): Promise<void> {
  using use = await sandboxes.use(id, { signal });
  await use.channel.startProcess(
    { id: `c${Math.random().toString(36).slice(2)}`, argv: ['/bin/true'] },
    { signal },
  );
}

async function requests(id: SandboxId, count: number): Promise<void> {
  using use = await sandboxes.use(id, { signal });
  for (let index = 0; index < count; index++) {
    const tunnel = await use.tunnel(8000);
    tunnel.end('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
    for await (const _ of tunnel);
  }
}

/** A process in the guest that holds so much memory that nobody else has. */
async function ballast(id: SandboxId, sizeMiB: number): Promise<void> {
  if (sizeMiB === 0) return;
  using use = await sandboxes.use(id, { signal });
  const program = `import os, time\nb = os.urandom(${sizeMiB} << 20)\nprint('ok', flush=True)\ntime.sleep(9999)`;
  await use.channel.startProcess({ id: 'ballast', argv: ['python3', '-c', program] }, { signal });
  const output = await use.channel.processOutput('ballast', 'stdout', { follow: true, signal });
  for await (const _ of output) break;
}

const blanks = async () => (await edge.machines()).filter(({ state }) => state === 'blank').length;
async function waitForBlanks(count: number): Promise<void> {
  for (const deadline = Date.now() + 60_000; (await blanks()) < count && Date.now() < deadline; )
    await settle(100);
}

/** Forks, and waits until every child has answered a command. */
async function forkRound(id: SandboxId, count: number) {
  await waitForBlanks(most);
  await settle();
  const from = performance.now();
  const result = await sandboxes.fork(id, { count }, { signal });
  const children = result.children.map((child) => {
    if ('error' in child) throw new Error(JSON.stringify(child.error));
    return child.sandbox.id as SandboxId;
  });
  const forkedMs = performance.now() - from;
  await Promise.all(children.map(command));
  return { timing: result.timing, forkedMs, answeredMs: performance.now() - from, children };
}
const killAll = (ids: readonly SandboxId[]) => Promise.all(ids.map((id) => sandboxes.kill(id)));

/** The same machine on a bare VMM: stop, pages, device state, and no more. */
async function openBare(digest: VersionDigest) {
  const directory = await mkdtemp(join(dataDirectory, 'b-'));
  const { source, restorable } = await openBareVmm(digest, {
    layout,
    runDirectory: join(directory, 'm'),
    signal,
  });
  const copier = createPageCopier({ toolPath: join(root, 'edge/native/build/page-copy'), helpers: 1 });
  const bare = source();
  const machine = await bare.restore(await bare.spawnBlank());
  for (let index = 0; index < requestsBefore; index++)
    await machine.http?.probe({ method: 'GET', path: '/' }, { signal });
  let running = machine.running;
  if (running === null) throw new Error('the bare machine does not run');
  const mapping = await findRamMapping(running.pid, restorable.snapshot.memoryPath);
  let files = 0;
  return {
    async round(): Promise<number> {
      const from = performance.now();
      const paused = await running!.pause();
      const { copied, written } = copier.capture(paused.pid, mapping, join(directory, `delta-${files++}`));
      await copied;
      await paused.saveState();
      const ms = performance.now() - from;
      running = await paused.resume();
      await written;
      return ms;
    },
    async [Symbol.asyncDispose]() {
      await machine.dispose('done');
      await copier[Symbol.asyncDispose]();
      await rm(directory, { recursive: true });
    },
  };
}

const spread = (values: readonly number[]) => ({ p50: median(values), p95: quantile(values, 0.95) });

/** What stops the source, bare and as a fork, in turns. */
async function interruption() {
  const id = await create(small, 'hello-python');
  await requests(id, requestsBefore);
  await using bare = await openBare(small);
  const times = {
    bare: [] as number[],
    stopped: [] as number[],
    state: [] as number[],
    pages: [] as number[],
    disk: [] as number[],
  };
  let dirtyBytes = 0;
  for (let round = -1; round < rounds; round++) {
    const bareMs = await bare.round();
    const { timing, children } = await forkRound(id, 1);
    await killAll(children);
    if (round < 0) continue;
    dirtyBytes = timing.dirtyBytes;
    times.bare.push(bareMs);
    times.stopped.push(timing.stoppedMs);
    times.state.push(timing.stateMs);
    times.pages.push(timing.pagesMs);
    times.disk.push(timing.diskMs);
  }
  await sandboxes.kill(id);
  return {
    dirtyMiB: mib(dirtyBytes),
    bareMs: spread(times.bare),
    stoppedMs: spread(times.stopped),
    parts: { stateMs: spread(times.state), pagesMs: spread(times.pages), diskMs: spread(times.disk) },
  };
}

/** From the call to an answered command in every child, and what a child holds. */
async function children() {
  const id = await create(small, 'hello-python');
  await requests(id, requestsBefore);
  const table: Record<string, { forked: ReturnType<typeof spread>; answered: ReturnType<typeof spread> }> =
    {};
  let heldMiB: number[] = [];
  let dirtyMiB = 0;
  for (const count of counts) {
    const forked: number[] = [];
    const answered: number[] = [];
    for (let round = -1; round < Math.max(isQuick ? 1 : 3, Math.ceil(rounds / count)); round++) {
      const outcome = await forkRound(id, count);
      if (round >= 0) {
        forked.push(outcome.forkedMs);
        answered.push(outcome.answeredMs);
      }
      if (count === most) {
        await settle(1000);
        const machines = await edge.machines();
        const held = machines.filter((row) => outcome.children.some((child) => child === (row.id as string)));
        heldMiB = held.map(({ privateBytes }) => mib(privateBytes ?? 0));
        dirtyMiB = mib(outcome.timing.dirtyBytes);
      }
      await killAll(outcome.children);
    }
    table[count] = { forked: spread(forked), answered: spread(answered) };
  }
  await sandboxes.kill(id);
  return { table, heldMiB: { median: median(heldMiB), max: Math.max(...heldMiB) }, dirtyMiB };
}

/** The same fork of a small and of a large guest, in turns. */
async function bySize() {
  const ids = [await create(small, 'hello-python'), await create(large, 'hello-python-large')] as const;
  const stopped = [[], []] as [number[], number[]];
  const parts = [[], []] as [object[], object[]];
  const dirty = [0, 0];
  for (const id of ids) await requests(id, requestsBefore);
  const dirtyOf = async (id: SandboxId) => {
    const { timing, children } = await forkRound(id, 1);
    await killAll(children);
    return mib(timing.dirtyBytes);
  };
  // A larger guest's kernel dirties more by itself; the small one gets as much on top.
  await ballast(
    ids[0],
    Math.max(0, Math.round((await dirtyOf(ids[1])) - (await dirtyOf(ids[0])) - interpreterMiB)),
  );
  for (let round = -1; round < rounds; round++) {
    for (const index of [0, 1] as const) {
      const { timing, children } = await forkRound(ids[index], 1);
      await killAll(children);
      dirty[index] = mib(timing.dirtyBytes);
      if (round < 0) continue;
      stopped[index].push(timing.stoppedMs);
      parts[index].push(timing);
    }
  }
  await killAll(ids);
  return { smallMs: median(stopped[0]), largeMs: median(stopped[1]), dirtyMiB: dirty, parts };
}

/** To durable, and back to an answered command. */
async function suspension() {
  const rows: Record<string, { pauseMs: number; resumeMs: number }> = {};
  for (const sizeMiB of suspensions.sizes) {
    const id = await create(small, 'hello-python');
    await ballast(id, sizeMiB);
    const pauses: number[] = [];
    const resumes: number[] = [];
    for (let round = 0; round < suspensions.rounds; round++) {
      let from = performance.now();
      await sandboxes.pause(id, { signal });
      pauses.push(performance.now() - from);
      await settle();
      from = performance.now();
      await sandboxes.resume(id, { signal });
      await command(id);
      resumes.push(performance.now() - from);
    }
    rows[`${sizeMiB} MiB more`] = { pauseMs: median(pauses), resumeMs: median(resumes) };
    await sandboxes.kill(id);
  }
  return rows;
}

try {
  const stops = await interruption();
  const forks = await children();
  const sizes = await bySize();
  const pauses = await suspension();
  console.table({
    'bare: stop, pages, state': stops.bareMs,
    'fork: source stopped': stops.stoppedMs,
    ...stops.parts,
  });
  console.table(
    Object.fromEntries(
      Object.entries(forks.table).flatMap(([count, { forked, answered }]) => [
        [`${count} children made`, forked],
        [`${count} children answered`, answered],
      ]),
    ),
  );
  console.table(
    Object.fromEntries(
      counts.map((count) => [
        `${count} forks`,
        { privateMiB: count * forks.heldMiB.median, fullCopyMiB: count * 256 },
      ]),
    ),
  );
  console.table(pauses);
  require('source stopped, against the bare steps', stops.stoppedMs.p50 / stops.bareMs.p50, 1.5, '×');
  require('source stopped, median', stops.stoppedMs.p50, 25, ' ms');
  const [one, all] = [forks.table[1], forks.table[most]];
  // Nine times for sixteen; fewer are given the same share.
  require(`${most} children against one`, (all?.answered.p50 ?? Infinity) /
    (one?.answered.p50 ?? 1), Math.max(2.5, (9 * most) / 16), '×');
  require('private RAM of a child over dirty pages of its source', forks.heldMiB.max -
    forks.dirtyMiB, 4, ' MiB');
  require('a 1 GiB guest stopped, against 256 MiB', sizes.largeMs / sizes.smallMs, 1.3, '×');
  await writeResult('fork', { rounds, stops, forks, sizes, pauses });
} finally {
  for (const { id } of await sandboxes.list({})) await sandboxes.kill(id as SandboxId);
  await edge.dispose();
}
