import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isGatewayError } from '../../sdk/index.ts';
import type { ProcessSpec, SandboxChannel } from './port.ts';
import { descriptorCount, readText, startTestAgent, type TestAgent } from './test-agent.ts';

const soon = () => ({ signal: AbortSignal.timeout(20_000) });
const sh = (id: string, script: string, more: Partial<ProcessSpec> = {}): ProcessSpec => ({
  id,
  argv: ['/bin/sh', '-c', script],
  ...more,
});

let agent: TestAgent;
let channel: SandboxChannel;
before(async () => {
  agent = await startTestAgent();
  channel = await agent.connect();
});
after(async () => {
  channel.close();
  await agent.stop();
});

async function follow(id: string, stream: 'stdout' | 'stderr' | 'pty' = 'stdout'): Promise<string> {
  return readText(await channel.processOutput(id, stream, { follow: true, ...soon() }));
}

async function isGone(pid: number): Promise<boolean> {
  for (let i = 0; i < 300; i++) {
    if (!existsSync(`/proc/${pid}`)) return true;
    await sleep(10);
  }
  return false;
}

describe('a process', () => {
  it('is found again by the note it was started with', async () => {
    await channel.startProcess(sh('noted', 'true', { note: 'Zm9v-_' }), soon());
    assert.equal((await channel.waitProcess('noted', soon())).note, 'Zm9v-_');
    const all = await channel.listProcesses(soon());
    assert.equal(all.find(({ id }) => id === 'noted')?.note, 'Zm9v-_');
    for (const note of ['', 'a"b', 'x'.repeat(4097)])
      await assert.rejects(channel.startProcess(sh('bad', 'true', { note }), soon()), (error) =>
        isGatewayError(error, 'invalid_request'),
      );
  });

  it('runs with its own session, the default environment and the given one, and reports its exit code', async () => {
    const script =
      'echo "$HOME|$USER|$PATH|$GREETING|$(printenv LEAK || echo none)"; cut -d" " -f6 /proc/$$/stat; pwd; echo oops >&2; exit 7';
    const started = await channel.startProcess(
      sh('plain', script, { env: { GREETING: 'hei' }, cwd: '/usr' }),
      soon(),
    );
    const status = await channel.waitProcess('plain', soon());
    assert.deepEqual(
      [status.state, status.exitCode, status.signal, status.isTimedOut],
      ['exited', 7, null, false],
    );
    const [variables, session, cwd] = (await follow('plain')).trim().split('\n');
    assert.match(variables!, /^\/[^|]*\|[^|]+\|\/usr\/local\/sbin:[^|]*\|hei\|none$/);
    assert.deepEqual([Number(session), cwd], [started.pid, '/usr']);
    assert.equal(await follow('plain', 'stderr'), 'oops\n');
  });

  it('that cannot be started says why, and leaves no record', async () => {
    const cases: [Partial<ProcessSpec>, string, RegExp][] = [
      [{ argv: ['/no/such/command'] }, 'file_not_found', /argv/],
      [{ argv: ['no-such-command'] }, 'file_not_found', /argv/],
      [{ argv: ['/etc/passwd'] }, 'forbidden', /argv/],
      [{ cwd: '/no/such/directory' }, 'file_not_found', /cwd/],
      [{ user: 'nobody-knows-me' }, 'invalid_request', /user/],
      [{ argv: [] }, 'invalid_request', /argv/],
      [{ env: { 'A=B': 'c' } }, 'invalid_request', /env/],
      [{ cwd: 'relative' }, 'invalid_request', /cwd/],
      [{ timeoutMs: 0 }, 'invalid_request', /timeoutMs/],
      [{ pty: { cols: 0, rows: 1 } }, 'invalid_request', /pty/],
      [{ id: 'a/b' }, 'invalid_request', /id/],
    ];
    for (const [change, code, message] of cases) {
      await assert.rejects(channel.startProcess({ ...sh('broken', 'true'), ...change }, soon()), (error) => {
        assert.ok(isGatewayError(error));
        assert.equal(error.code, code, JSON.stringify(change));
        assert.match(error.message, message);
        return true;
      });
    }
    await assert.rejects(channel.processStatus('broken', soon()), (error) =>
      isGatewayError(error, 'process_not_found'),
    );
  });

  it('keeps its id while it runs, and gives it back afterwards', async () => {
    await channel.startProcess(sh('twice', 'sleep 30'), soon());
    await assert.rejects(channel.startProcess(sh('twice', 'true'), soon()), (error) =>
      isGatewayError(error, 'conflict'),
    );
    await channel.signalProcess('twice', 15, soon());
    assert.deepEqual((await channel.waitProcess('twice', soon())).signal, 15);
    await channel.startProcess(sh('twice', 'exit 3'), soon());
    assert.equal((await channel.waitProcess('twice', soon())).exitCode, 3);
  });

  it('is ended by its timeout together with grandchildren that left its session', async (context) => {
    if (!agent.hasGroups) return context.skip('no writable cgroup2 file system');
    const pids = `${agent.directory}/grandchild`;
    const script = `setsid sh -c 'echo $$ > ${pids}; exec sleep 300' & while [ ! -s ${pids} ]; do sleep 0.01; done; wait`;
    await channel.startProcess(sh('slow', script, { timeoutMs: 1_500 }), soon());
    const status = await channel.waitProcess('slow', soon());
    assert.deepEqual([status.isTimedOut, status.signal], [true, 9]);
    assert.ok(await isGone(Number(await readFile(pids, 'utf8'))), 'the grandchild still runs');
  });

  it('is deleted with daemons that outlived it', async (context) => {
    if (!agent.hasGroups) return context.skip('no writable cgroup2 file system');
    const script = 'setsid sleep 300 >/dev/null 2>&1 & echo $!';
    await channel.startProcess(sh('daemon', script), soon());
    await channel.waitProcess('daemon', soon());
    const pid = Number(await follow('daemon'));
    assert.ok(existsSync(`/proc/${pid}`));
    await channel.deleteProcess('daemon', soon());
    assert.ok(await isGone(pid), 'the daemon still runs');
    await assert.rejects(channel.processStatus('daemon', soon()), (error) =>
      isGatewayError(error, 'process_not_found'),
    );
  });

  it('gets signals as a group, also while nobody waits', async () => {
    await channel.startProcess(
      sh('trap', 'trap "echo got; exit 4" USR1; echo set; while :; do sleep 0.02; done'),
      soon(),
    );
    const output = follow('trap');
    for (;;) {
      const { stdoutBytes } = await channel.processStatus('trap', soon());
      if (stdoutBytes! > 0) break;
      await sleep(5);
    }
    await channel.signalProcess('trap', 10, soon());
    assert.equal(await output, 'set\ngot\n');
    assert.equal((await channel.waitProcess('trap', soon())).exitCode, 4);
    await assert.rejects(channel.signalProcess('trap', 10, soon()), (error) =>
      isGatewayError(error, 'conflict'),
    );
    await assert.rejects(channel.signalProcess('nobody', 10, soon()), (error) =>
      isGatewayError(error, 'process_not_found'),
    );
  });

  it('whose waiter goes away goes on, and a deleted one tells its waiter', async () => {
    await channel.startProcess(sh('waited', 'sleep 30'), soon());
    await assert.rejects(channel.waitProcess('waited', { signal: AbortSignal.timeout(50) }), (error) =>
      isGatewayError(error, 'guest_unreachable'),
    );
    assert.equal((await channel.processStatus('waited', soon())).state, 'running');
    const waiting = assert.rejects(channel.waitProcess('waited', soon()), (error) =>
      isGatewayError(error, 'process_not_found'),
    );
    await sleep(20);
    await channel.deleteProcess('waited', soon());
    await waiting;
  });

  it('is forgotten, oldest first, when 256 are on record', async () => {
    await using fresh = await startTestAgent();
    await using own = await fresh.connect();
    await own.startProcess({ id: 'lasting', argv: ['sleep', '60'] }, soon());
    for (let i = 0; i < 258; i++) {
      await own.startProcess({ id: `p${i}`, argv: ['true'] }, soon());
      await own.waitProcess(`p${i}`, soon());
    }
    const ids = (await own.listProcesses(soon())).map(({ id }) => id);
    assert.equal(ids.length, 256);
    assert.deepEqual([ids[0], ids[1], ids.at(-1)], ['lasting', 'p3', 'p257']);
  });
});

describe('output', () => {
  it('keeps its last MiB, and says where what it gives begins', async () => {
    const script = 'head -c 3000000 /dev/zero | tr "\\0" a; printf end';
    await channel.startProcess(sh('flood', script), soon());
    const status = await channel.waitProcess('flood', soon());
    assert.equal(status.stdoutBytes, 3_000_003);
    const kept = await channel.processOutput('flood', 'stdout', soon());
    assert.equal(kept.offset, 3_000_003 - 1024 * 1024);
    const text = await readText(kept);
    assert.equal(text.length, 1024 * 1024);
    assert.ok(text.endsWith('aaaend'));
    const tail = await channel.processOutput('flood', 'stdout', { offset: -5, ...soon() });
    assert.equal(tail.offset, 2_999_998);
    assert.equal(await readText(tail), 'aaend');
    const rest = await channel.processOutput('flood', 'stdout', {
      offset: 3_000_000,
      follow: true,
      ...soon(),
    });
    assert.equal(await readText(rest), 'end');
    await assert.rejects(
      channel.processOutput('flood', 'stdout', { offset: 3_000_004, ...soon() }),
      (error) => isGatewayError(error, 'invalid_request'),
    );
  });

  it('loses nothing while it is followed, however slow the reader', async () => {
    const script = 'head -c 6000000 /dev/zero | tr "\\0" b; echo done';
    await channel.startProcess(sh('paced', script), soon());
    const stream = await channel.processOutput('paced', 'stdout', { follow: true, ...soon() });
    let size = 0;
    for await (const chunk of stream) {
      size += (chunk as Buffer).length;
      if (size < 1_000_000) await sleep(2);
    }
    assert.equal(size, 6_000_005);
  });

  it('does not stop a process when nobody reads, nor when a reader goes away', async () => {
    const script = 'head -c 20000000 /dev/zero; echo finished >&2';
    await channel.startProcess(sh('unread', script), soon());
    const abandoned = await channel.processOutput('unread', 'stdout', { follow: true, ...soon() });
    abandoned.destroy();
    assert.equal((await channel.waitProcess('unread', soon())).exitCode, 0);
    assert.equal(await follow('unread', 'stderr'), 'finished\n');
  });

  it('ends for followers when the process exits, although a daemon still holds the pipe', async () => {
    const script = `(sleep 1; echo late; sleep 300) & echo now`;
    await channel.startProcess(sh('holder', script), soon());
    assert.equal(await follow('holder'), 'now\n');
    for (let text = ''; text !== 'now\nlate\n'; await sleep(20))
      text = await readText(await channel.processOutput('holder', 'stdout', soon()));
    await channel.deleteProcess('holder', soon());
  });

  it('of a terminal is one stream, with the size that was asked for', async () => {
    const script =
      'stty size; test -t 0 && test -t 1 && test -t 2 && echo tty; read line; stty size; echo "<$line>"';
    await channel.startProcess(sh('term', script, { pty: { cols: 91, rows: 33 } }), soon());
    let text = '';
    const stream = await channel.processOutput('term', 'pty', { follow: true, ...soon() });
    stream.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
    for (let i = 0; i < 500 && !text.includes('tty'); i++) await sleep(10);
    assert.equal(text, '33 91\r\ntty\r\n');
    await channel.resizeTerminal('term', { cols: 40, rows: 10 }, soon());
    await channel.writeStdin('term', Buffer.from('typed\r'), { offset: 0, ...soon() });
    await finished(stream);
    assert.match(text, /10 40\r\n<typed>\r\n$/);
    const status = await channel.waitProcess('term', soon());
    assert.deepEqual([status.exitCode, status.isPty], [0, true]);
    await assert.rejects(channel.processOutput('term', 'stderr', soon()), (error) =>
      isGatewayError(error, 'process_not_found'),
    );
  });

  it('of a terminal ends with its end-of-file character', async () => {
    await channel.startProcess(sh('cat-term', 'cat; echo over', { pty: { cols: 80, rows: 24 } }), soon());
    const output = follow('cat-term', 'pty');
    await channel.writeStdin('cat-term', Buffer.from('line\n'), { offset: 0, isLast: true, ...soon() });
    assert.match(await output, /line\r\nline\r\nover\r\n$/);
  });
});

describe('input', () => {
  it('can be sent again from any accepted offset without doubling', async () => {
    await channel.startProcess({ id: 'cat', argv: ['cat'], stdin: true }, soon());
    const output = follow('cat');
    assert.deepEqual(await channel.writeStdin('cat', Buffer.from('abcdef'), { offset: 0, ...soon() }), {
      offset: 6,
    });
    assert.deepEqual(await channel.writeStdin('cat', Buffer.from('abcdef'), { offset: 0, ...soon() }), {
      offset: 6,
    });
    assert.deepEqual(await channel.writeStdin('cat', Buffer.from('efgh'), { offset: 4, ...soon() }), {
      offset: 8,
    });
    await assert.rejects(channel.writeStdin('cat', Buffer.from('x'), { offset: 9, ...soon() }), (error) =>
      isGatewayError(error, 'conflict'),
    );
    await channel.writeStdin('cat', Buffer.from('h!'), { offset: 7, isLast: true, ...soon() });
    assert.equal(await output, 'abcdefgh!');
    await assert.rejects(channel.writeStdin('cat', Buffer.from('x'), { offset: 9, ...soon() }), (error) =>
      isGatewayError(error, 'conflict'),
    );
  });

  it('waits for a process that is slow to read, and one writer excludes another', async () => {
    await channel.startProcess(sh('slow-reader', 'sleep 0.3; wc -c', { stdin: true }), soon());
    const big = Buffer.alloc(2_000_000, 120);
    const writing = channel.writeStdin('slow-reader', big, { offset: 0, isLast: true, ...soon() });
    await sleep(50);
    await assert.rejects(channel.writeStdin('slow-reader', big, { offset: 0, ...soon() }), (error) =>
      isGatewayError(error, 'conflict'),
    );
    assert.deepEqual(await writing, { offset: 2_000_000 });
    assert.equal((await follow('slow-reader')).trim(), '2000000');
  });

  it('that was all taken counts, although the process ended before the request did', async () => {
    for (let i = 0; i < 20; i++) {
      await channel.startProcess(sh('quick', 'read line', { stdin: true }), soon());
      const written = await channel.writeStdin('quick', Buffer.from('line\n'), { offset: 0, ...soon() });
      assert.deepEqual(written, { offset: 5 });
      await channel.waitProcess('quick', soon());
    }
  });

  it('is refused when the process has ended or never had any', async () => {
    await channel.startProcess(sh('ends', 'exec <&-; sleep 0.2', { stdin: true }), soon());
    const big = Buffer.alloc(500_000, 120);
    await assert.rejects(channel.writeStdin('ends', big, { offset: 0, ...soon() }), (error) =>
      isGatewayError(error, 'conflict'),
    );
    await channel.startProcess(sh('deaf', 'cat; sleep 0.2'), soon());
    await assert.rejects(channel.writeStdin('deaf', Buffer.from('x'), { offset: 0, ...soon() }), (error) =>
      isGatewayError(error, 'conflict'),
    );
  });
});

describe('the agent', () => {
  it('holds no descriptor of processes that ended and were deleted', async () => {
    await using fresh = await startTestAgent();
    await using own = await fresh.connect();
    await own.ping(soon());
    const before = await descriptorCount(fresh.pid);
    for (let i = 0; i < 20; i++) {
      await own.startProcess({ id: `n${i}`, argv: ['cat'], stdin: true }, soon());
      await own.startProcess({ id: `t${i}`, argv: ['cat'], pty: { cols: 1, rows: 1 } }, soon());
      await own.deleteProcess(`n${i}`, soon());
      await own.deleteProcess(`t${i}`, soon());
      await own.startProcess({ id: 'absent', argv: ['/absent'] }, soon()).catch(() => {});
    }
    for (let i = 0; i < 300 && (await descriptorCount(fresh.pid)) > before; i++) await sleep(10);
    assert.ok((await descriptorCount(fresh.pid)) <= before);
  });

  it('runs a process as another user with that user’s groups only', async (context) => {
    if (process.getuid?.() !== 0) return context.skip('needs root');
    const directory = `${agent.directory}/private`;
    await mkdir(directory, { mode: 0o700 });
    await writeFile(`${directory}/secret`, 'x');
    await channel.startProcess(
      sh('other', `id -u; id -G; cat ${directory}/secret`, { user: 'nobody' }),
      soon(),
    );
    assert.notEqual((await channel.waitProcess('other', soon())).exitCode, 0);
    assert.equal(await follow('other'), '65534\n65534\n');
  });
});
