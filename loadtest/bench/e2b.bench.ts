/**
 * `node loadtest/bench/e2b.bench.ts [rounds]`: what the unchanged E2B SDK costs over what it is made of, against a plain round trip and
 * the agent's own exec in the same run, in turns; and whether many creates at once all succeed.
 */
import dns from 'node:dns';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { Sandbox } from 'e2b';
import { dataLayout, openEdge } from '../../edge/index.ts';
import { certificateDirectory, createLog, openGateway } from '../../gateway/runtime.ts';
import { createAdminClient, randomName, type SandboxId } from '../../sdk/index.ts';
import { benchDirectory, median, publishExample, quantile, require, writeResult } from './bench-node.ts';

const rounds = Number(process.argv[2] ?? 20);
const together = 50;
const log = createLog('error');
const signal = new AbortController().signal;
const dataDirectory = await benchDirectory();
const edge = await openEdge({ log, onStep: () => {}, signal }, { dataDirectory });
const service = await openGateway(
  { edge, log, sandboxes: edge.sandboxes },
  {
    listen: '127.0.0.1:0',
    paths: { ...dataLayout(dataDirectory), tls: certificateDirectory(dataDirectory) },
  },
);
try {
  const { domain, caPath } = service.e2b ?? { domain: '', caPath: null };
  setDefaultCACertificates([...getCACertificates(), await readFile(caPath ?? '', 'utf8')]);
  leadHere(`.${domain.replace(/:\d+$/, '')}`);
  const options = { apiKey: service.apiKey, domain };
  await publishExample(service, 'base', { pool: { ready: 2, blank: 1, max: 64 } });
  const client = createAdminClient(service);

  const atFloor = async () => {
    for (;;) {
      const pool = (await client.pools()).find(({ template }) => template === 'base');
      if (pool !== undefined && pool.ready >= pool.target.ready && pool.blank >= pool.target.blank) return;
      await sleep(50);
    }
  };
  const timed = async (into: number[], work: () => Promise<unknown>) => {
    const from = performance.now();
    await work();
    into.push(performance.now() - from);
  };

  const times = { trip: [], agent: [], create: [], exec: [], run: [] } as Record<string, number[]>;
  const own = await Sandbox.create('base', options);
  const exec = async (argv: readonly string[]) => {
    using use = await edge.sandboxes.use(own.sandboxId as SandboxId, { signal });
    const id = randomName(12);
    await use.channel.startProcess({ id, argv, user: 'user' }, { signal });
    await use.channel.waitProcess(id, { signal });
  };
  for (let round = -1; round < rounds; round++) {
    await atFloor();
    const kept = round < 0 ? [] : null;
    await timed(kept ?? times.trip!, () => fetch(`${service.url}/healthz`).then((answer) => answer.text()));
    await timed(kept ?? times.agent!, () => exec(['/bin/true']));
    const pair = [
      () => timed(kept ?? times.exec!, () => exec(['/bin/bash', '-l', '-c', 'true'])),
      () => timed(kept ?? times.run!, () => own.commands.run('true')),
    ];
    // Whichever comes second finds the guest's caches warmer.
    for (const half of round % 2 === 0 ? pair : pair.toReversed()) await half();
    await timed(kept ?? times.create!, async () => {
      const made = await Sandbox.create('base', options);
      setImmediate(() => void made.kill());
    });
  }
  await own.kill();
  await atFloor();
  const many: number[] = [];
  const made = await Promise.allSettled(
    Array.from({ length: together }, async () => {
      const from = performance.now();
      const sandbox = await Sandbox.create('base', options);
      many.push(performance.now() - from);
      return sandbox;
    }),
  );
  const failures = made.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []));
  for (const failure of new Set(failures)) console.log(failure);
  await Promise.all(made.map((one) => (one.status === 'fulfilled' ? one.value.kill() : null)));

  const figures = {
    rounds,
    ...Object.fromEntries(
      Object.entries(times).map(([name, values]) => [
        `${name}Ms`,
        { p50: median(values), p95: quantile(values, 0.95) },
      ]),
    ),
    together: { count: together, failed: failures.length, p50Ms: median(many), maxMs: Math.max(...many) },
  };
  console.log(JSON.stringify(figures, null, 2));
  await writeResult('e2b', figures);
  const limit = 3 * (median(times.trip!) + median(times.agent!));
  require('create, p50', median(times.create!), Math.round(limit * 10) / 10, ' ms');
  require('commands.run over the agent’s exec, p50', median(times.run!) - median(times.exec!), 5, ' ms');
  require(`${together} creates at once, failed`, failures.length, 0, '');
} finally {
  await service.close();
  await edge.close({ deadlineMs: 10_000 });
}

/** A hosts file knows no wildcards. */
function leadHere(suffix: string): void {
  const usual = dns.lookup.bind(dns) as (...words: unknown[]) => void;
  dns.lookup = ((name: string, ...rest: unknown[]) => {
    if (!name.endsWith(suffix)) return usual(name, ...rest);
    const options = rest[0] as { all?: boolean } | undefined;
    const done = rest.at(-1) as (...answer: unknown[]) => void;
    const address = '127.0.0.1';
    const isAll = typeof options === 'object' && options.all === true;
    process.nextTick(() => (isAll ? done(null, [{ address, family: 4 }]) : done(null, address, 4)));
  }) as typeof dns.lookup;
}
