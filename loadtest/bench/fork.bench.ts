/**
 * `npm run bench:fork [rounds]`: what a fork costs its source and its children, against the bare steps on a bare VMM in the same run;
 * what pause and resume cost, and what is bound to a machine when it is claimed. What is compared is measured in turns, so that it meets
 * the same noise.
 */
import { dataLayout } from '../../edge/index.ts';
import { openBareFork } from './bare-fork.ts';
import { benchDirectory, median, publishAndClose, quantile, require, writeResult } from './bench-node.ts';
import { openForkNode, type Served, settle } from './fork-node.ts';

const rounds = Number(process.argv[2] ?? 12);
const signal = new AbortController().signal;
const requestsBefore = 100;
/** With so few rounds it is seen that all works, and no more. */
const isQuick = rounds < 4;
const counts = isQuick ? [1, 4] : [1, 4, 16];
const most = Math.max(...counts);
const suspensions = isQuick ? { sizes: [0, 16], rounds: 2 } : { sizes: [0, 16, 64], rounds: 4 };
/** Makes the dirty sets of a small and a large guest, whose kernels differ by some MiB, nearly the same. */
const evenMiB = 32;
const mib = (bytes: number) => bytes / 2 ** 20;
const isRoot = process.getuid?.() === 0;

const resources = { vcpus: 1, memoryMiB: 256, diskMiB: 1024 };
const pool = { ready: 1, blank: 0, max: 40 };
const example = 'hello-python';
const variants = {
  'hello-python': { pool },
  'hello-python-large': { pool, resources: { ...resources, memoryMiB: 1024 } },
  // A network card needs root.
  ...(isRoot ? { 'hello-python-card': { pool, network: { 'example.com:443': true } } } : {}),
};
const names = Object.keys(variants);
const digests = await publishAndClose(
  ...Object.entries(variants).map(([name, changes]) => ({ example, changes: { ...changes, name } })),
);
const [small, large, carded = small] = digests.map((digest, index) => ({
  digest,
  template: names[index] ?? '',
})) as [Served, Served, Served?];

const dataDirectory = await benchDirectory();
const layout = dataLayout(dataDirectory);
const node = await openForkNode(dataDirectory, carded === small ? [small, large] : [small, large, carded], {
  blanks: most,
  signal,
});
const { sandboxes } = node;

const spread = (values: readonly number[]) => ({ p50: median(values), p95: quantile(values, 0.95) });

/** What stops the source, bare and as a fork, in turns. */
async function interruption() {
  const id = await node.create(small);
  await node.requests(id, requestsBefore);
  await using bare = await openBareFork(small.digest, { layout, dataDirectory, requestsBefore, signal });
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
    const { timing, children } = await node.fork(id, 1);
    await node.killAll(children);
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

/** What a restore is made of, in order; see `RestoreParts` of the edge. */
const partNames = ['waitMs', 'blankMs', 'fillMs', 'loadMs', 'greetMs', 'identityMs', 'hookMs'] as const;

interface ForkRow {
  readonly forkedMs: ReturnType<typeof spread>;
  readonly answeredMs: ReturnType<typeof spread>;
  /** Medians; of the last one: all children's first commands. */
  readonly parts: Readonly<Record<string, number>>;
}

/** From the call to an answered command in every child, and what a child holds. */
async function children() {
  const id = await node.create(small);
  await node.requests(id, requestsBefore);
  const table: Record<string, ForkRow> = {};
  let heldMiB: number[] = [];
  let dirtyMiB = 0;
  for (const count of counts) {
    const outcomes: Awaited<ReturnType<typeof node.fork>>[] = [];
    for (let round = -1; round < Math.max(isQuick ? 1 : 3, Math.ceil(rounds / count)); round++) {
      const outcome = await node.fork(id, count);
      if (round >= 0) outcomes.push(outcome);
      if (count === most) {
        await settle(1000);
        const machines = await node.edge.machines();
        const held = machines.filter((row) => outcome.children.some((child) => child === (row.id as string)));
        heldMiB = held.map(({ privateBytes }) => mib(privateBytes ?? 0));
        dirtyMiB = mib(outcome.timing.dirtyBytes);
      }
      await node.killAll(outcome.children);
    }
    const restores = outcomes.flatMap(({ parts }) => parts);
    table[count] = {
      forkedMs: spread(outcomes.map(({ forkedMs }) => forkedMs)),
      answeredMs: spread(outcomes.map(({ answeredMs }) => answeredMs)),
      parts: {
        stoppedMs: median(outcomes.map(({ timing }) => timing.stoppedMs)),
        ...Object.fromEntries(
          partNames.map((name) => [name, median(restores.map((parts) => parts[name] ?? Number.NaN))]),
        ),
        commandsMs: median(outcomes.map(({ answeredMs, forkedMs }) => answeredMs - forkedMs)),
      },
    };
  }
  await sandboxes.kill(id);
  return { table, heldMiB: { median: median(heldMiB), max: Math.max(...heldMiB) }, dirtyMiB };
}

/** The same fork of a small and of a large guest, in turns. */
async function bySize() {
  const ids = [await node.create(small), await node.create(large)] as const;
  const stopped = [[], []] as [number[], number[]];
  const dirty = [[], []] as [number[], number[]];
  for (const id of ids) {
    await node.requests(id, requestsBefore);
    await node.ballast(id, evenMiB);
  }
  for (let round = -1; round < rounds; round++) {
    for (const index of [0, 1] as const) {
      const { timing, children } = await node.fork(ids[index], 1);
      await node.killAll(children);
      if (round < 0) continue;
      stopped[index].push(timing.stoppedMs);
      dirty[index].push(mib(timing.dirtyBytes));
    }
  }
  await node.killAll(ids);
  const row = (index: 0 | 1) => ({ dirtyMiB: median(dirty[index]), stoppedMs: median(stopped[index]) });
  return { small: row(0), large: row(1) };
}

/** To durable, and back to an answered command. */
async function suspension() {
  const rows: Record<string, { dirtyMiB: number; pauseMs: number; resumeMs: number }> = {};
  for (const sizeMiB of suspensions.sizes) {
    const id = await node.create(small);
    await node.ballast(id, sizeMiB);
    const pauses: number[] = [];
    const resumes: number[] = [];
    await node.news('paused');
    for (let round = 0; round < suspensions.rounds; round++) {
      let from = performance.now();
      await sandboxes.pause(id, { signal });
      pauses.push(performance.now() - from);
      await settle();
      from = performance.now();
      await sandboxes.resume(id, { signal });
      await node.command(id);
      resumes.push(performance.now() - from);
    }
    const dirty = (await node.news('paused')).map(({ dirtyBytes = 0 }) => mib(dirtyBytes));
    rows[`${sizeMiB} MiB more`] = {
      dirtyMiB: median(dirty),
      pauseMs: median(pauses),
      resumeMs: median(resumes),
    };
    await sandboxes.kill(id);
  }
  return rows;
}

/** Creating out of warm machines, with and without what is bound to a machine when it is claimed. */
async function claims() {
  const bound = {
    env: { GREETING: 'hei', MODE: 'bench' },
    secrets: { TOKEN: 'x'.repeat(40) },
    ...(carded === small ? {} : { network: { 'example.org:443': true } }),
  };
  const times = { without: [] as number[], with: [] as number[] };
  for (let round = -1; round < rounds; round++) {
    for (const kind of ['without', 'with'] as const) {
      await node.waitFor('ready', 1, carded.template);
      await settle();
      const from = performance.now();
      const id = await node.create(carded, kind === 'with' ? bound : {});
      if (round >= 0) times[kind].push(performance.now() - from);
      await sandboxes.kill(id);
    }
  }
  return { withoutMs: spread(times.without), withMs: spread(times.with), hasNetwork: carded !== small };
}

/** Milliseconds and MiB as people read them. */
const shown = (row: object) =>
  Object.fromEntries(
    Object.entries(row).map(([key, value]) => [
      key,
      typeof value === 'number' ? Number(value.toFixed(1)) : value,
    ]),
  );
const table = (rows: Record<string, object>) =>
  console.table(Object.fromEntries(Object.entries(rows).map(([key, row]) => [key, shown(row)])));

try {
  const stops = await interruption();
  const forks = await children();
  const sizes = isQuick ? null : await bySize();
  const pauses = await suspension();
  const creates = await claims();
  table({
    'bare: stop, pages, state': stops.bareMs,
    'fork: source stopped': stops.stoppedMs,
    ...stops.parts,
  });
  const rows = Object.entries(forks.table);
  table(
    Object.fromEntries(
      rows.flatMap(([count, { forkedMs, answeredMs }]) => [
        [`${count} children made`, forkedMs],
        [`${count} children answered`, answeredMs],
      ]),
    ),
  );
  console.log(
    'Parts of it, medians; those of a restore are of one child each, and two are under way at once:',
  );
  table(Object.fromEntries(rows.map(([count, { parts }]) => [`${count} children`, parts])));
  table(
    Object.fromEntries(
      counts.map((count) => [
        `${count} forks`,
        {
          dirtyMiB: forks.dirtyMiB,
          privateMiB: count * forks.heldMiB.median,
          fullCopyMiB: count * resources.memoryMiB,
        },
      ]),
    ),
  );
  if (sizes !== null) table({ '256 MiB': sizes.small, '1 GiB': sizes.large });
  table(pauses);
  table({ 'create without': creates.withoutMs, 'create with env, secrets, network': creates.withMs });
  require('source stopped, against the bare steps', stops.stoppedMs.p50 / stops.bareMs.p50, 1.5, '×');
  require('source stopped, median', stops.stoppedMs.p50, 25, ' ms');
  const [one, all] = [forks.table[1], forks.table[most]];
  // Nine times for sixteen; fewer are given the same share.
  require(`${most} children against one`, (all?.answeredMs.p50 ?? Infinity) /
    (one?.answeredMs.p50 ?? 1), Math.max(2.5, (9 * most) / 16), '×');
  require('private RAM of a child over dirty pages of its source', forks.heldMiB.max -
    forks.dirtyMiB, 4, ' MiB');
  if (sizes !== null)
    require('a 1 GiB guest stopped, against 256 MiB', sizes.large.stoppedMs /
      sizes.small.stoppedMs, 1.3, '×');
  require(`create with env, secrets${creates.hasNetwork ? ', network' : ''} against without`, creates.withMs
    .p50 / creates.withoutMs.p50, 1.2, '×');
  await writeResult('fork', { rounds, stops, forks, sizes, pauses, creates });
} finally {
  await node[Symbol.asyncDispose]();
}
