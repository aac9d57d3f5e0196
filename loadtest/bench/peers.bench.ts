/**
 * `npm run bench:peers [rounds]`: Snapgate beside what else would answer the request on this machine, in one run and in
 * turns, so that all meet the same noise. Every contender runs the same program; figures are from the caller's view.
 */
import { Client } from 'undici';
import { dataLayout } from '../../edge/index.ts';
import type { RunningService } from '../../gateway/runtime.ts';
import { createAdminClient, headerNames, type StartType } from '../../sdk/index.ts';
import { openBareVmm } from './bare-vmm.ts';
import {
  benchDirectory,
  median,
  publishFolder,
  quantile,
  require,
  startBenchNode,
  writeResult,
} from './bench-node.ts';
import { readAnswer, runProcess, startNodeServer, startWorkerd } from './peers/host-peers.ts';
import { openPlainQemu } from './peers/plain-qemu.ts';

const rounds = Number(process.argv[2] ?? 10);
/** A boot takes a hundred times as long as the others and varies little. */
const boots = Math.ceil(rounds / 5);
const signal = new AbortController().signal;

interface Contender {
  readonly name: string;
  /** Whether each request meets an instance that nobody used before. */
  readonly isFresh: boolean;
  readonly isolation: string;
  readonly times: number[];
}
const contender = (name: string, isFresh: boolean, isolation: string): Contender => ({
  ...{ name, isFresh, isolation, times: [] },
});

const layout = dataLayout(await benchDirectory());
const folder = 'loadtest/bench/peers';
/** A pool that refills at once would boot beside the measurement of another; one machine a template is enough. */
const pools = {
  ready: { ready: 1, blank: 0, max: 3 },
  restored: { ready: 0, blank: 1, max: 3 },
} as const;

// What needs QEMU alone comes first: no pool refills beside it.
const service = await startBenchNode();
let digest: Awaited<ReturnType<typeof publishFolder>>;
try {
  digest = await publishFolder(service, folder, { name: 'bench-peers-ready', pool: pools.ready });
  await publishFolder(service, folder, { name: 'bench-peers-restored', pool: pools.restored });
} catch (error) {
  await service.close();
  throw error;
}
const machine = 'own kernel, virtual machine';
const snapgate = {
  reused: contender('Snapgate, reused', false, machine),
  ready: contender('Snapgate, ready', true, machine),
  restored: contender('Snapgate, restored', true, machine),
};
const peers = {
  boot: contender('cold boot of the same guest', true, machine),
  loadvm: contender('QEMU -loadvm', true, machine),
  process: contender('a process per request', true, 'process, shared kernel'),
  node: contender('warm Node server', false, 'none between requests'),
  workerdStart: contender('workerd started per request', true, 'process and V8 isolate, shared kernel'),
  workerd: contender('warm workerd', false, 'V8 isolate, shared process and kernel'),
};

/** One call of a template in a session of its own, whose first call gets a fresh clone and whose others the same. */
async function invoke(
  client: Client,
  { apiKey }: RunningService,
  template: string,
  session: string,
): Promise<{ readonly ms: number; readonly start: StartType }> {
  const from = performance.now();
  const answer = await client.request({
    method: 'GET',
    path: `/fn/${template}/`,
    headers: { authorization: `Bearer ${apiKey}`, [headerNames.session]: session },
  });
  const body = await answer.body.text();
  const ms = performance.now() - from;
  if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}: ${body}`);
  readAnswer(body);
  return { ms, start: answer.headers[headerNames.start] as StartType };
}

/** Until the pool of a template holds what it should, and everything that it discarded is gone. */
async function poolAtRest(name: string): Promise<void> {
  const client = createAdminClient(service);
  for (const deadline = Date.now() + 60_000; ; ) {
    const pool = (await client.pools()).find(({ template }) => template === name);
    const isAtRest =
      pool !== undefined && pool.ready === pool.target.ready && pool.blank === pool.target.blank;
    if (isAtRest) break;
    if (Date.now() > deadline) throw new Error(`the pool of ${name} is at ${JSON.stringify(pool)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await new Promise((resolve) => setTimeout(resolve, 300));
}

async function measureSnapgate(client: Client, round: number): Promise<void> {
  for (const type of ['ready', 'restored'] as const) {
    const name = `bench-peers-${type}`;
    await poolAtRest(name);
    const session = `${process.pid}-${round}`;
    const first = await invoke(client, service, name, session);
    if (first.start !== type) throw new Error(`${name} answered from a ${first.start} machine`);
    snapgate[type].times.push(first.ms);
    await poolAtRest(name);
    for (let call = 0; call < 3; call++) {
      const again = await invoke(client, service, name, session);
      if (again.start !== 'reused') throw new Error(`${name} answered from a ${again.start} machine`);
      snapgate.reused.times.push(again.ms);
    }
  }
}

const timed = async (work: () => Promise<void>) => {
  const from = performance.now();
  await work();
  return performance.now() - from;
};

let imageBytes = 0;
let accelerator = '';
try {
  const bare = await openBareVmm(digest, { layout, runDirectory: layout.machines, signal });
  accelerator = bare.verdict.accelerator;
  await using qemu = await openPlainQemu(bare, signal);
  await using node = await startNodeServer();
  await using workerd = await startWorkerd();
  imageBytes = qemu.imageBytes;
  const client = new Client(service.url);
  for (let round = 0; round < rounds; round++) {
    await measureSnapgate(client, round);
    peers.loadvm.times.push(await qemu.loadvm());
    if (round < boots) peers.boot.times.push(await qemu.coldBoot());
    peers.process.times.push(await runProcess());
    const from = performance.now();
    await using started = await startWorkerd();
    await started.request();
    peers.workerdStart.times.push(performance.now() - from);
    for (let call = 0; call < 5; call++) {
      peers.node.times.push(await timed(() => node.request()));
      peers.workerd.times.push(await timed(() => workerd.request()));
    }
  }
  await client.close();
} finally {
  await service.close();
}

const all = [...Object.values(snapgate), ...Object.values(peers)];
const readyMs = median(snapgate.ready.times);
const rows = all.map(({ name, isFresh, isolation, times }) => ({
  ...{ name, isFresh, isolation },
  p50Ms: median(times),
  p95Ms: quantile(times, 0.95),
  timesSnapgateReady: median(times) / readyMs,
}));
console.log(
  `Guests run under ${accelerator}; host peers run natively. A -loadvm image is ${Math.round(imageBytes / 2 ** 20)} MiB a machine.`,
);
console.table(
  Object.fromEntries(
    rows.map(({ name, isFresh, isolation, p50Ms, p95Ms, timesSnapgateReady }) => [
      name,
      {
        'p50 ms': Number(p50Ms.toFixed(2)),
        'p95 ms': Number(p95Ms.toFixed(2)),
        '× Snapgate ready': Number(timesSnapgateReady.toPrecision(2)),
        'fresh instance': isFresh ? 'yes' : 'no',
        isolation,
      },
    ]),
  ),
);
require('a ready clone against a cold boot of the same guest', median(peers.boot.times) /
  readyMs, 10, '×', false);
require('a restored clone against QEMU -loadvm', median(peers.loadvm.times) /
  median(snapgate.restored.times), 1, '×', false);
await writeResult('peers', { rounds, accelerator, loadvmImageBytes: imageBytes, rows });
