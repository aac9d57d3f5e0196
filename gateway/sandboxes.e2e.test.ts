import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isGatewayError, type Sandbox, type SandboxEvent, Snapgate } from '../sdk/index.ts';
import { type DrillNode, leaksOf, publishDrill, startNode } from './testing/drill-node.ts';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

let node: DrillNode;
let snapgate: Snapgate;
let source: Sandbox;
before(async () => {
  node = await startNode();
  await publishDrill(node.client);
  snapgate = new Snapgate({ url: node.url, apiKey: node.apiKey });
  source = await snapgate.sandboxes.create({
    template: 'drill',
    deadlineMs: 1_800_000,
    env: { GREETING: 'hei' },
    secrets: { TOKEN: 'hush' },
  });
});
after(async () => {
  await source?.kill();
  for (const { id } of await snapgate.sandboxes.snapshots()) await snapgate.sandboxes.removeSnapshot(id);
  await node?.stop();
  const left = await leaksOf(node.dataDirectory);
  await node[Symbol.asyncDispose]();
  assert.deepEqual(left, []);
});

const asRoot = { user: 'root' } as const;

it('commands, files and ports of a machine are reached from outside', async () => {
  const ran = await source.run('echo $GREETING $TOKEN; cat', { ...asRoot, stdin: 'input' });
  assert.deepEqual([ran.stdout, ran.exitCode], ['hei hush\ninput', 0]);
  await source.files.write('/root/kept.txt', 'kept');
  assert.equal(await source.files.readText('/root/kept.txt'), 'kept');
  const answer = await source.port(8000).fetch('/');
  assert.ok(answer.status < 500, `the function answers as before: ${answer.status}`);
});

it('children go on from its memory and files, apart from each other, without its secrets', async () => {
  const counter = await source.start('n=0; while read line; do n=$((n+1)); echo $n; done', {
    ...asRoot,
    id: 'counter',
  });
  await counter.write('a\nb\n');
  let said = '';
  for await (const chunk of counter.stdout()) {
    said += new TextDecoder().decode(chunk);
    if (said === '1\n2\n') break;
  }
  const { children, failures, notInherited } = await source.fork({ count: 2 });
  assert.deepEqual(failures, []);
  assert.ok(notInherited.includes('secret TOKEN'));
  for (const child of children) {
    const same = child.process('counter');
    await same.write('c\n');
    await same.closeStdin();
    assert.equal((await same.wait()).exitCode, 0);
    let all = '';
    for await (const chunk of same.stdout()) all += new TextDecoder().decode(chunk);
    assert.equal(all, '1\n2\n3\n');
    assert.equal(await child.files.readText('/root/kept.txt'), 'kept');
    assert.equal((await child.run('echo "[$TOKEN]"', asRoot)).stdout, '[]\n');
    await child.files.write('/root/kept.txt', child.id);
  }
  assert.equal(await source.files.readText('/root/kept.txt'), 'kept');
  assert.equal((await counter.status()).state, 'running');
  await Promise.all(children.map((child) => child.kill()));
});

it('a paused sandbox refuses work, and goes on where it was', async () => {
  await source.pause();
  await assert.rejects(source.run('true', asRoot), (error) => isGatewayError(error, 'conflict'));
  await source.resume();
  const counter = source.process('counter');
  await counter.write('d\n');
  await counter.closeStdin();
  assert.equal((await counter.wait()).exitCode, 0);
});

it('who waits for a process and reads it outlives a fork, a pause and a resume', async () => {
  const slow = await source.start('echo one; read line; echo two', { ...asRoot, id: 'slow' });
  const waiting = slow.wait();
  const reading = (async () => {
    let all = '';
    for await (const chunk of slow.stdout()) all += new TextDecoder().decode(chunk);
    return all;
  })();
  const { children } = await source.fork();
  await children[0]?.kill();
  await source.pause();
  await source.resume();
  await slow.write('x\n');
  assert.equal(await reading, 'one\ntwo\n');
  assert.equal((await waiting).exitCode, 0);
});

it('a snapshot is what a sandbox is rewound to and what others start from', async () => {
  const snapshot = await source.snapshot({ name: 'e2e' });
  await source.files.write('/root/later.txt', 'x');
  await using copy = await snapgate.sandboxes.create({ snapshot: 'snapshot:e2e' });
  await source.rewind(snapshot);
  for (const one of [copy, source]) {
    await assert.rejects(one.files.stat('/root/later.txt'), (error) =>
      isGatewayError(error, 'file_not_found'),
    );
    assert.equal(await one.files.readText('/root/kept.txt'), 'kept');
  }
});

it('what a process is stays with it: exit and output over a pause, input left open, a terminal’s size', async () => {
  const done = await source.start('echo kept; exit 6', asRoot);
  assert.equal((await done.wait()).termination?.evidence, 'exit code 6');
  await source.pause();
  await source.resume();
  const again = source.process(done.id);
  const status = await again.status();
  assert.deepEqual([status.exitCode, status.termination?.reason], [6, 'exited']);
  assert.equal(await text(again.stdout()), 'kept\n');

  const open = await source.start('echo over', asRoot);
  assert.equal(await text(open.stdout()), 'over\n', 'its exit ends its output although its input is open');
  await assert.rejects(open.write('late'), (error) => isGatewayError(error, 'conflict'));

  const terminal = await source.pty({
    ...asRoot,
    cols: 91,
    rows: 33,
    command: 'stty size; read line; stty size',
  });
  const screen = text(terminal.output());
  while ((await terminal.status()).stdoutBytes === 0) await sleep(20);
  await terminal.resize({ cols: 40, rows: 10 });
  await terminal.write('\r');
  assert.match(await screen, /^33 91\r\n(.|\r|\n)*10 40\r\n$/);
});

it('special files are listed, odd names go both ways, and a watch follows into new directories', async () => {
  const { files } = source;
  const proc = await files.list('/proc');
  assert.ok(proc.some(({ name, size }) => name === 'kcore' && size > 2 ** 40));
  assert.ok((await files.list('/dev')).some(({ name, type }) => name === 'null' && type === 'device'));
  await files.mkdir('/root/odd');
  const odd = ['grün 猫 🐈', 'two\nlines', '\u0007"\\%2F?&#', 'x'.repeat(255)];
  for (const name of odd) await files.write(`/root/odd/${name}`, name);
  await source.run('mkfifo /root/odd/fifo', asRoot);
  const rows = await files.list('/root/odd');
  assert.deepEqual(rows.map(({ name }) => name).sort(), [...odd, 'fifo'].sort());
  for (const name of odd) assert.equal(await files.readText(`/root/odd/${name}`), name);
  await assert.rejects(files.read('/root/odd/fifo'), (error) =>
    isGatewayError(error, 'conflict', 'invalid_request'),
  );

  for await (const { type, path } of files.watch('/root/odd', { recursive: true })) {
    if (type === 'started') await files.mkdir('/root/odd/deep/er');
    if (type === 'create' && path === '/root/odd/deep/er') await files.write('/root/odd/deep/er/猫', 'x');
    if (path === '/root/odd/deep/er/猫') break;
  }
});

it('traffic on a port outlives forks, snapshots and pauses: each request is answered, or told to come again', async () => {
  await using busy = await snapgate.sandboxes.create({
    template: 'drill',
    deadlineMs: 600_000,
    autoResume: true,
  });
  const port = busy.port(8000);
  const seen = { answered: 0, refused: 0 };
  const stop = new AbortController();
  const clients = Array.from({ length: 3 }, async () => {
    while (!stop.signal.aborted) {
      // Whatever `fetch` throws is a reset, and fails the test.
      const response = await fetch(`${node.url}/v1/sandboxes/${busy.id}/ports/8000/count`, {
        headers: { authorization: `Bearer ${busy.token}` },
        signal: AbortSignal.timeout(30_000),
      });
      await response.arrayBuffer();
      if (response.status === 200) seen.answered += 1;
      else {
        assert.equal(response.status, 503, response.headers.get('x-snapgate-error') ?? '');
        assert.match(response.headers.get('retry-after') ?? '', /^[1-9]/);
        seen.refused += 1;
      }
    }
  });
  try {
    const { children } = await busy.fork({ count: 2 });
    await Promise.all(children.map((child) => child.kill()));
    await busy.snapshot();
    for (let round = 0; round < 2; round++) {
      await busy.pause();
      await busy.resume();
    }
    const drained = port.fetch('/slow');
    await sleep(300);
    await busy.pause();
    assert.equal((await drained).status, 200, 'a request that ends in time is waited for');
    assert.equal((await port.fetch('/count')).status, 200, 'a request wakes it, as it was asked for');
  } finally {
    stop.abort();
    await Promise.all(clients);
  }
  assert.ok(seen.answered > 10, JSON.stringify(seen));

  const hanging = port.fetch('/hang').catch((error: unknown) => error);
  await sleep(300);
  await busy.pause();
  const put = await hanging;
  assert.ok(isGatewayError(put, 'version_unavailable') && put.details.retryAfterSeconds === 1, String(put));
  await busy.resume();
  assert.equal((await port.fetch('/')).status, 200, 'its ports answer as before');
});

it('the guide does what it says, as it is printed', async () => {
  const guide = await readFile(join(root, 'docs/explore-continuations.md'), 'utf8');
  const printed = (language: string) =>
    [...guide.matchAll(/^```(\w+)\n(.*?)^```$/gms)]
      .filter(([, name]) => name === language)
      .map(([, , code]) => code)
      .join('\n')
      .replaceAll('hello-python', 'drill');
  const directory = await mkdtemp(join(tmpdir(), 'snapgate-guide-'));
  const env = { ...process.env, SNAPGATE_URL: node.url, SNAPGATE_API_KEY: node.apiKey };
  try {
    const program = printed('ts')
      .replace("'snapgate'", JSON.stringify(join(root, 'sdk/index.ts')))
      .replace('http://127.0.0.1:7070', node.url);
    await writeFile(join(directory, 'guide.ts'), program);
    const options = { cwd: directory, env, timeout: 120_000 };
    const { stdout } = await run(process.execPath, [join(directory, 'guide.ts')], options);
    assert.match(stdout, /^the source stood still for [\d.]+ ms$/m);
    assert.match(stdout, /^the best of 4 got 13$/m);
    assert.match(stdout, /^as before\na new one goes on from the snapshot: running$/m);
    assert.match(stdout, /^\d+ resumed$/m);
    const shell = `set -e; snapgate() { "${process.execPath}" "${join(root, 'gateway/cli/main.ts')}" "$@"; }\n${printed('sh')}`;
    const told = await run('bash', ['-c', shell], options);
    assert.match(told.stdout, /^1024\n1024\n1024\n[a-z0-9]{20} {2}drill@v1 {2}running\n├─ /);
  } finally {
    await rm(directory, { recursive: true });
  }
});

it('every transition is told in order, from any place on', async () => {
  const all: SandboxEvent[] = [];
  for await (const event of snapgate.sandboxes.events({ sandbox: source.id })) all.push(event);
  const types = new Set(all.map(({ type }) => type));
  for (const type of [
    'created',
    'snapshotting',
    'settled',
    'pausing',
    'paused',
    'resuming',
    'resumed',
  ] as const)
    assert.ok(types.has(type), type);
  for (const type of ['snapshotted', 'rewinding', 'rewound', 'process_ended'] as const)
    assert.ok(types.has(type), type);
  const middle = all[Math.floor(all.length / 2)]!;
  const rest: SandboxEvent[] = [];
  const stop = new AbortController();
  const query = { sandbox: source.id, since: middle.sequence, follow: true, signal: stop.signal };
  await source.setDeadline(1_800_000);
  for await (const event of snapgate.sandboxes.events(query)) {
    rest.push(event);
    if (event.type === 'deadline_changed') break;
  }
  assert.deepEqual(
    rest.slice(0, -1).map(({ sequence }) => sequence),
    all.filter(({ sequence }) => sequence > middle.sequence).map(({ sequence }) => sequence),
  );
  stop.abort();
});

async function text(source: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
