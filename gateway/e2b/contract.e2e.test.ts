/** What E2B's SDKs promise that only real machines can keep; the rest of the contract is in `sdk.test.ts`. */
import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox as Interpreter } from '@e2b/code-interpreter';
import { Sandbox } from 'e2b';
import { Sandbox as OldSandbox } from 'e2b-2.45';
import { type GuestNode, startGuestNode } from './testing/guest-node.ts';

let node: GuestNode;
let sandbox: Sandbox;
before(async () => {
  node = await startGuestNode();
  await node.publish('base', { pool: { ready: 2, blank: 1, max: 10 } });
  sandbox = await Sandbox.create('base', {
    ...node.options,
    envs: { GREETING: 'hei' },
    timeoutMs: 1_800_000,
  });
});
after(async () => {
  await sandbox?.kill();
  await node?.[Symbol.asyncDispose]();
});

it('both ends of the supported SDK versions use one gateway, and each other’s sandboxes', async () => {
  await using old = await killed(OldSandbox.create('base', node.options) as unknown as Promise<Sandbox>);
  await old.files.write('from-old.txt', 'old');
  const same = await Sandbox.connect(old.sandboxId, node.options);
  assert.equal(await same.files.read('/home/user/from-old.txt'), 'old');
  assert.match((await same.commands.run('id -un; pwd; sudo -n id -u')).stdout, /^user\n\/home\/user\n0\n$/);
  assert.equal(
    (await same.commands.run('echo $E2B_SANDBOX_ID')).stdout,
    `${old.sandboxId}\n`,
    'a command knows where it runs',
  );
});

it('files are those of their user, and what belongs to others is closed to him', async () => {
  const written = await sandbox.files.write('/new/place/file.txt', 'x');
  const info = await sandbox.files.getInfo(written.path);
  assert.deepEqual([info.owner, info.group, info.permissions], ['user', 'user', '-rw-r--r--']);
  await assert.rejects(sandbox.files.write('/etc/mine', 'x'), /403/);
  await assert.rejects(sandbox.files.read('/etc/shadow'), /403/);
  assert.match(await sandbox.files.read('/etc/shadow', { user: 'root' }), /^root:/);
  assert.equal((await sandbox.files.read('/proc/sys/kernel/random/boot_id')).length, 37);
  await assert.rejects(sandbox.files.read('x', { user: 'nobody-knows' }), /no such user|no user/);
  const metadata = { author: 'mish' };
  await sandbox.files.write('noted.txt', 'x', { metadata });
  assert.deepEqual((await sandbox.files.getInfo('noted.txt')).metadata, metadata);
});

it('a pause keeps processes, env and servers; a fork goes on from them, and its env with it', async () => {
  await sandbox.commands.run('python3 -m http.server 8000', { background: true, timeoutMs: 0 });
  const counter = await sandbox.commands.run('n=0; while read line; do n=$((n+1)); echo $n; done', {
    background: true,
    stdin: true,
    timeoutMs: 0,
  });
  await counter.sendStdin('x\n');
  await until(async () => (await fetch(`https://${sandbox.getHost(8000)}/`)).status === 200);
  await sandbox.pause();
  assert.equal((await fetch(`https://${sandbox.getHost(8000)}/`)).status, 502);
  await sandbox.connect();
  assert.equal((await fetch(`https://${sandbox.getHost(8000)}/`)).status, 200);
  const forks = (await sandbox.fork({ count: 2 })) as Sandbox[];
  try {
    for (const one of [sandbox, ...forks]) {
      assert.equal((await one.commands.run('echo $GREETING')).stdout, 'hei\n');
      const same = await one.commands.connect(counter.pid);
      await same.sendStdin('y\n');
      await same.closeStdin();
      assert.equal((await same.wait()).stdout, '2\n');
    }
  } finally {
    await Promise.all(forks.map((fork) => fork.kill()));
  }
});

it('a snapshot is a template, with files and memory of its moment', async () => {
  await sandbox.files.write('kept.txt', 'kept');
  const { snapshotId } = await sandbox.createSnapshot();
  await sandbox.files.remove('kept.txt');
  await using copy = await killed(Sandbox.create(snapshotId, node.options));
  assert.equal(await copy.files.read('kept.txt'), 'kept');
  assert.equal(await Sandbox.deleteSnapshot(snapshotId, node.options), true);
  assert.equal(await copy.files.read('kept.txt'), 'kept');
});

it('a timeout pauses, and a request to a port wakes up again', async () => {
  await using light = await killed(
    Sandbox.create('base', {
      ...node.options,
      timeoutMs: 3000,
      lifecycle: { onTimeout: 'pause', autoResume: true },
    }),
  );
  await until(async () => (await light.getInfo()).state === 'paused');
  const answer = await fetch(`https://${light.getHost(1)}/`);
  assert.match(((await answer.json()) as { message: string }).message, /port is not open/);
  assert.equal((await light.getInfo()).state, 'running');
});

it('one idempotency key makes one sandbox, and what was published last is what is created', async () => {
  const create = async () => {
    const answer = await fetch(`${node.url}/v2/sandboxes`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${node.options.apiKey}`,
        'content-type': 'application/json',
        'idempotency-key': 'once',
      },
      body: JSON.stringify({ templateID: 'base', metadata: { key: 'once' } }),
    });
    return ((await answer.json()) as { sandboxID: string }).sandboxID;
  };
  const ids = await Promise.all([create(), create(), create()]);
  assert.equal(new Set(ids).size, 1);
  const listed = await Sandbox.list({ ...node.options, query: { metadata: { key: 'once' } } }).nextItems();
  assert.equal(listed.length, 1);
  await Sandbox.kill(ids[0] ?? '', node.options);
  await node.publish('base', { env: { EDITION: 'second' }, pool: { ready: 2, blank: 1, max: 10 } });
  for (let round = 0; round < 5; round++) {
    await using fresh = await killed(Sandbox.create('base', node.options));
    assert.equal((await fresh.commands.run('echo $EDITION')).stdout, 'second\n');
  }
});

it('the code interpreter keeps state between cells, and sees the env of its sandbox after pause and fork', async () => {
  await node.publish('code-interpreter-v1');
  await using notebook = await killed(Interpreter.create({ ...node.options, envs: { GREETING: 'hei' } }));
  assert.equal((await notebook.runCode('import os\nx = 20')).error, undefined);
  const said: string[] = [];
  const ran = await notebook.runCode('print("tere", flush=True)\nx += 22\nx', {
    onStdout: ({ line }) => void said.push(line),
  });
  assert.deepEqual(
    [ran.text, ran.logs.stdout.join(''), said.join(''), ran.executionCount],
    ['42', 'tere\n', 'tere\n', ran.executionCount],
  );
  const failed = await notebook.runCode('1 / 0');
  assert.equal(failed.error?.name, 'ZeroDivisionError');
  assert.match(failed.error?.traceback ?? '', /1 \/ 0/);
  await notebook.pause();
  await notebook.connect();
  const [fork] = (await notebook.fork()) as Interpreter[];
  assert.ok(fork !== undefined);
  try {
    for (const one of [notebook, fork]) {
      const value = await Interpreter.connect(one.sandboxId, node.options);
      assert.equal((await value.runCode('os.environ["GREETING"], x')).text, "('hei', 42)");
    }
  } finally {
    await fork.kill();
  }
});

async function until(test: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 30_000;
  while (!(await test())) {
    if (Date.now() > deadline) throw new Error(`never: ${test}`);
    await sleep(100);
  }
}

async function killed<T extends { kill(): Promise<boolean> }>(
  made: Promise<T>,
): Promise<T & AsyncDisposable> {
  const sandbox = await made;
  return Object.assign(sandbox, {
    async [Symbol.asyncDispose]() {
      await sandbox.kill();
    },
  });
}
