import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { isGatewayError, type Sandbox, Snapgate } from '../sdk/index.ts';
import { type DrillNode, leaksOf, publishDrill, startNode } from './testing/drill-node.ts';

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
