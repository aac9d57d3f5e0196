/** E2B's own SDKs, unchanged, over sandboxes in memory with the real guest agent. What needs machines is in `contract.e2e.test.ts`. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { type CommandResult, Sandbox, TimeoutError } from 'e2b';
import { Sandbox as OldSandbox } from 'e2b-2.45';
import type { SandboxId } from '../../sdk/index.ts';
import { startTlsHarness, type TlsHarness } from './testing/tls-harness.ts';

let h: TlsHarness;
before(async () => {
  h = await startTlsHarness();
});
after(async () => {
  await h[Symbol.asyncDispose]();
});

/** Each SDK has classes of its own. */
const isNotFound = (error: unknown): boolean => /NotFoundError$/.test((error as Error).name);

/** Both have the same methods; what differs between them is what they send. */
const sdks = [
  ['newest', Sandbox],
  ['oldest', OldSandbox as unknown as typeof Sandbox],
] as const;

for (const [age, Sdk] of sdks) {
  describe(`the ${age} SDK`, () => {
    let sandbox: Sandbox;
    let root: string;
    before(async () => {
      sandbox = await Sdk.create('open', { ...h.options, envs: { A: 'a' }, metadata: { age } });
      root = await h.inner.sandboxes.directoryOf(sandbox.sandboxId as SandboxId);
    });
    after(async () => {
      await sandbox.kill();
    });

    it('runs commands, with the env of the sandbox under their own, and tells how they failed', async () => {
      const ran = await sandbox.commands.run('echo $A $B; echo oops >&2', { envs: { B: 'b' }, cwd: root });
      assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode], ['a b\n', 'oops\n', 0]);
      await assert.rejects(sandbox.commands.run('exit 3'), (error) => {
        const { exitCode, error: said } = error as unknown as CommandResult;
        return exitCode === 3 && said === 'exit status 3';
      });
      await assert.rejects(sandbox.commands.run('true', { cwd: '/nowhere' }), /cwd "\/nowhere"/);
    });

    it('feeds, lists, follows and kills commands in the background', async () => {
      const cat = await sandbox.commands.run('cat', { background: true, stdin: true });
      const listed = (await sandbox.commands.list()).find(({ pid }) => pid === cat.pid);
      assert.deepEqual([listed?.cmd, listed?.args], ['/bin/bash', ['-l', '-c', 'cat']]);
      const other = await sandbox.commands.connect(cat.pid);
      await sandbox.commands.sendStdin(cat.pid, 'one\n');
      await cat.sendStdin('two ü\n');
      await cat.closeStdin();
      assert.equal((await cat.wait()).stdout, 'one\ntwo ü\n');
      assert.equal((await other.wait()).stdout, 'one\ntwo ü\n');
      const sleeper = await sandbox.commands.run('sleep 1000', { background: true });
      assert.equal(await sleeper.kill(), true);
      await assert.rejects(sleeper.wait(), (error) => (error as CommandResult).error === 'signal: killed');
      assert.equal(await sandbox.commands.kill(999_999), false);
      await assert.rejects(sandbox.commands.connect(999_999), isNotFound);
    });

    it('ends a command with its timeout, and everything that it started', async () => {
      const script = `sleep 1000 & echo $! > ${root}/pids; setsid sleep 1000 & echo $! >> ${root}/pids; wait`;
      await assert.rejects(sandbox.commands.run(script, { timeoutMs: 3000 }), (error) => {
        assert.equal((error as Error).name, TimeoutError.name);
        return true;
      });
      // Killed by the agent at the same moment; init may need another one to reap them.
      const look = `for i in $(seq 100); do alive=$(for p in $(cat ${root}/pids); do grep -l '^State:.[^Z]' /proc/$p/status; done 2>/dev/null | wc -l); [ $alive = 0 ] && break; sleep 0.05; done; cat ${root}/pids | wc -l; echo $alive alive`;
      assert.equal((await sandbox.commands.run(look)).stdout, '2\n0 alive\n');
    });

    it('does not wait for input that is left open, nor for what outlives a command', async () => {
      const left = await sandbox.commands.run('(sleep 1000 &) ; echo done', { stdin: true } as never);
      assert.equal(left.stdout, 'done\n');
    });

    it('gives a terminal its size, its input and its end', async () => {
      let said = '';
      const terminal = await sandbox.pty.create({
        cols: 91,
        rows: 22,
        onData: (bytes) => {
          said += new TextDecoder().decode(bytes);
        },
      });
      await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size\n'));
      while (!said.includes('22 91')) await new Promise((resolve) => setTimeout(resolve, 20));
      await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
      await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit 4\n'));
      await assert.rejects(terminal.wait(), (error) => (error as CommandResult).exitCode === 4);
      assert.match(said, /30 100/);
    });

    it('carries files byte for byte, in every form and with odd names', async () => {
      const bytes = crypto.getRandomValues(new Uint8Array(60_000));
      const path = `${root}/a dir/ü "quoted"\n${'x'.repeat(200)}`;
      const forms = [{}, { gzip: true }, { useOctetStream: true }] as const;
      for (const form of forms) {
        await sandbox.files.write(path, bytes.buffer as ArrayBuffer, form as never);
        for (const gzip of [false, true]) {
          const back = await sandbox.files.read(path, { format: 'bytes', gzip } as never);
          assert.ok(
            Buffer.from(back as unknown as Uint8Array).equals(bytes),
            `${JSON.stringify(form)}, gzip ${gzip}`,
          );
        }
      }
      await assert.rejects(sandbox.files.read(`${root}/missing`), isNotFound);
      await assert.rejects(sandbox.files.read(root), /is a directory/);
      assert.equal(await sandbox.files.read(`${root}/x/../a dir/../empty`).catch(() => 'missing'), 'missing');
      assert.match(await sandbox.files.read('/proc/self/status'), /^Name:/);
    });

    it('keeps metadata with a file, lists, moves and removes entries', async () => {
      const metadata = { author: 'mish' };
      const written = await sandbox.files.write(`${root}/noted`, 'x', { metadata });
      assert.deepEqual(written.metadata, metadata);
      await sandbox.commands.run(`ln -s noted ${root}/link`);
      const info = await sandbox.files.getInfo(`${root}/link`);
      assert.equal(info.symlinkTarget, `${root}/noted`);
      assert.equal(await sandbox.files.makeDir(`${root}/made/deep`), true);
      assert.equal(await sandbox.files.makeDir(`${root}/made/deep`), false);
      const moved = await sandbox.files.rename(`${root}/noted`, `${root}/made/moved`);
      assert.deepEqual([moved.name, moved.metadata, moved.permissions], ['moved', metadata, '-rw-r--r--']);
      const names = (await sandbox.files.list(`${root}/made`, { depth: 2 })).map(({ name, type }) => [
        name,
        type,
      ]);
      assert.deepEqual(names, [
        ['deep', 'dir'],
        ['moved', 'file'],
      ]);
      await sandbox.files.remove(`${root}/made`);
      assert.equal(await sandbox.files.exists(`${root}/made`), false);
    });

    it('tells of changes as they come, uploads as what they are', async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const seen: string[] = [];
      const watch = await sandbox.files.watchDir(
        root,
        ({ type, name }) => {
          seen.push(`${type} ${name}`);
          if (name === 'watched/last') resolve();
        },
        { recursive: true },
      );
      await sandbox.files.makeDir(`${root}/watched`);
      await sandbox.files.write(`${root}/watched/file`, 'x');
      await sandbox.files.write(`${root}/watched/last`, 'x');
      await promise;
      await watch.stop();
      assert.ok(seen.includes('create watched/file') && seen.includes('write watched/file'), seen.join());
      assert.ok(!seen.some((line) => line.includes('.snapgate-')), seen.join());
      await assert.rejects(
        sandbox.files.watchDir(`${root}/nowhere`, () => {}),
        isNotFound,
      );
    });

    it('shares files by signed addresses, which hold for nothing else', async () => {
      const up = await sandbox.uploadUrl(`${root}/shared`, { useSignatureExpiration: 60 });
      const form = new FormData();
      form.append('file', 'shared');
      assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200);
      const down = await sandbox.downloadUrl(`${root}/shared`);
      assert.equal(await (await fetch(down)).text(), 'shared');
      const part = await fetch(down, { headers: { range: 'bytes=2-3' } });
      assert.deepEqual(
        [part.status, await part.text(), part.headers.get('content-range')],
        [206, 'ar', 'bytes 2-3/6'],
      );
      for (const [bad, status] of [
        [down.replace('shared', 'other'), 401],
        [down.replace(/signature=[^&]+/, ''), 401],
        [`${down}&surprise=1`, 400],
      ] as const)
        assert.equal((await fetch(bad)).status, status, bad);
    });

    it('finds sandboxes by state, metadata and page; moves deadlines; connects without shortening', async () => {
      await using second = await disposable(Sdk.create('open', { ...h.options, metadata: { age } }));
      const pages = Sdk.list({ ...h.options, limit: 1, query: { metadata: { age }, state: ['running'] } });
      assert.deepEqual([(await pages.nextItems())[0]?.sandboxId, pages.hasNext], [second.sandboxId, true]);
      assert.deepEqual([(await pages.nextItems())[0]?.sandboxId, pages.hasNext], [sandbox.sandboxId, false]);
      await sandbox.setTimeout(3_600_000);
      const before = (await sandbox.getInfo()).endAt;
      await Sdk.connect(sandbox.sandboxId, { ...h.options, timeoutMs: 1000 });
      assert.deepEqual((await sandbox.getInfo()).endAt, before);
      await sandbox.setTimeout(60_000);
      assert.ok((await sandbox.getInfo()).endAt < before);
    });

    it('pauses, answers for a paused one what it expects, and goes on', async () => {
      assert.equal(await sandbox.pause(), true);
      assert.equal(await sandbox.pause(), false);
      assert.equal(await sandbox.isRunning(), false);
      await assert.rejects(sandbox.commands.run('true'), /sandbox/i);
      await sandbox.connect();
      assert.equal(await sandbox.isRunning(), true);
    });

    it('forks into children with tokens of their own, and keeps snapshots that sandboxes start from', async () => {
      const [child, other] = (await sandbox.fork({ count: 2 })) as Sandbox[];
      assert.ok(child !== undefined && other !== undefined);
      assert.equal((await child.commands.run('echo $A')).stdout, 'a\n');
      const reach = (token: string | undefined) =>
        fetch(`https://${child.getHost(49_983)}/envs`, { headers: { 'x-access-token': token ?? '' } });
      const own = (child as unknown as { envdAccessToken: string }).envdAccessToken;
      const parents = (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;
      assert.equal((await reach(own)).status, 200);
      assert.equal((await reach(parents)).status, 401);
      await Promise.all([child.kill(), other.kill()]);
      const snapshot = await sandbox.createSnapshot({ name: `snap-${age}` });
      assert.deepEqual(await sandbox.listSnapshots().nextItems(), [snapshot]);
      await using copy = await disposable(Sdk.create(snapshot.snapshotId, h.options));
      assert.equal(await copy.isRunning(), true);
      assert.equal(await Sdk.deleteSnapshot(snapshot.snapshotId, h.options), true);
      assert.equal(await Sdk.deleteSnapshot(snapshot.snapshotId, h.options), false);
    });

    it('reaches servers by their host, with a token where traffic is not public', async () => {
      const server = createServer((request, response) => response.end(JSON.stringify(request.headers)));
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const { port } = server.address() as AddressInfo;
      try {
        const answer = await fetch(`https://${sandbox.getHost(port)}/x`);
        assert.equal(answer.status, 200);
        await using shut = await disposable(
          Sdk.create('open', {
            ...h.options,
            // biome-ignore lint/suspicious/noTemplateCurlyInString: this is how clients write it
            network: { allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}' },
          }),
        );
        const url = `https://${shut.getHost(port)}/`;
        assert.equal((await fetch(url)).status, 403);
        const token = shut.trafficAccessToken ?? '';
        const let_in = await fetch(url, { headers: { 'e2b-traffic-access-token': token } });
        const headers = (await let_in.json()) as Record<string, string>;
        assert.equal(headers.host, `localhost:${port}`);
        assert.equal(headers['e2b-traffic-access-token'], undefined);
      } finally {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
      }
      const closed = await fetch(`https://${sandbox.getHost(1)}/`);
      const body = (await closed.json()) as Record<string, unknown>;
      assert.deepEqual(
        [closed.status, body.code, body.port, body.sandboxId],
        [502, 502, 1, sandbox.sandboxId],
      );
    });

    it('is told within moments that a sandbox was killed under a command, and gets 502 everywhere then', async () => {
      const doomed = await Sdk.create('open', h.options);
      const running = await doomed.commands.run('sleep 1000', { background: true });
      const failed = assert.rejects(running.wait(), /killed or reached its end of life/);
      assert.equal(await doomed.kill(), true);
      await failed;
      assert.equal(await doomed.kill(), false);
      for (const path of ['/health', '/files?path=/x', '/metrics', '/process.Process/List', '/anything']) {
        const answer = await fetch(`https://${doomed.getHost(49_983)}${path}`);
        assert.deepEqual(
          [answer.status, await answer.json()],
          [502, { sandboxId: doomed.sandboxId, message: 'The sandbox was not found', code: 502 }],
        );
      }
    });
  });
}

async function disposable(made: Promise<Sandbox>): Promise<Sandbox & AsyncDisposable> {
  const sandbox = await made;
  return Object.assign(sandbox, {
    async [Symbol.asyncDispose]() {
      await sandbox.kill();
    },
  });
}
