import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isGatewayError, newMachineId, newNodeId } from '../../sdk/index.ts';
import { createImageBuilder } from '../../templates/index.ts';
import { createQemuVmm, type RunningVmm, type SnapshotFiles, type Vmm } from '../vmm/index.ts';
import { connectGuest } from './connect.ts';
import type { SandboxChannel } from './port.ts';
import { greet } from './preamble.ts';
import { readText } from './test-agent.ts';

const run = promisify(execFile);
const checkout = join(import.meta.dirname, '../..');
const signal = AbortSignal.timeout(15 * 60_000);
const soon = () => ({ signal: AbortSignal.timeout(120_000) });
const token = randomBytes(32).toString('hex');
const node = newNodeId();
const machineId = 'ab'.repeat(16);
const echoPort = 7;

let directory: string;
let vmm: Vmm;
let machine: RunningVmm;
let channel: SandboxChannel;
let files: SnapshotFiles;
let shape: { vcpus: number; memoryMiB: number; diskMiB: number; rootPath: string };

const open = (from: RunningVmm) => connectGuest({ socketPath: from.agentSocketPath, token, ...soon() });

/** Runs the guest's program to its end and answers what it printed. */
async function deed(own: SandboxChannel, id: string, args: string[], user = 'root'): Promise<string> {
  await own.startProcess({ id, argv: ['/test-guest', ...args], user }, soon());
  return (await readText(await own.processOutput(id, 'stdout', { follow: true, ...soon() }))).trim();
}

const identity = (hostname: string) => ({
  wallClockMs: Date.now(),
  entropy: randomBytes(64),
  hostname,
  machineId,
});

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'snapgate-guest-'));
  const root = join(directory, 'root');
  await mkdir(join(root, 'etc'), { recursive: true });
  await writeFile(
    join(root, 'etc/passwd'),
    'root:x:0:0:root:/:/bin/sh\nguest:x:1000:1000::/nowhere:/bin/sh\n',
  );
  await writeFile(join(root, 'etc/group'), 'root:x:0:\nguest:x:1000:\n');
  const source = join(import.meta.dirname, 'test-guest.c');
  await run('gcc', ['-Wall', '-Wextra', '-Werror', '-O1', '-static', '-o', join(root, 'test-guest'), source]);
  const rootPath = join(directory, 'root.erofs');
  await run('mkfs.erofs', [rootPath, root]);
  const builder = createImageBuilder(
    {},
    { dataPath: join(checkout, '.snapgate'), agentPath: join(checkout, 'templates/agent/build/agent') },
  );
  await run('make', ['-s', '-C', join(checkout, 'templates/agent')]);
  await run('make', ['-s', '-C', join(checkout, 'edge/native')]);
  const kernel = await builder.ensureKernel({ signal, onProgress: () => {} });
  shape = { vcpus: 1, memoryMiB: 128, diskMiB: 64, rootPath };
  files = {
    memoryPath: join(directory, 'memory'),
    statePath: join(directory, 'state'),
    diskPath: join(directory, 'disk'),
  };
  vmm = await createQemuVmm(
    { now: Date.now },
    {
      runDirectory: join(directory, 'run'),
      cacheDirectory: join(directory, 'cache'),
      shimPath: join(checkout, 'edge/native/build/map-private.so'),
      probeGuest: { kernelPath: kernel.vmlinuzPath, initrdPath: kernel.initrdPath },
      signal,
    },
  );
  machine = await vmm.boot({
    id: newMachineId(node),
    shape,
    kernelPath: kernel.vmlinuzPath,
    initrdPath: kernel.initrdPath,
    kernelArgs: [`snapgate.token=${token}`],
    memoryPath: files.memoryPath,
    diskPath: files.diskPath,
    signal,
  });
  channel = await open(machine);
});

after(async () => {
  await machine?.dispose();
  await rm(directory, { recursive: true });
});

describe('the agent as init of a real guest', () => {
  it('says on the console that it is ready', async () => {
    assert.match(await machine.consoleTail(), /snapgate-agent: root is mounted\r?\n.*snapgate-agent: ready/s);
  });

  it('takes clock, hostname and machine-id from resume', async () => {
    await channel.resume(identity('warm-up'), soon());
    const report = await channel.resume(identity('clone-1'), soon());
    assert.ok(Math.abs(report.clockSkewMs) < 1_000, `${report.clockSkewMs} ms`);
    const [, hostname, seconds] = (await deed(channel, 'look', ['look'])).split(' ');
    assert.equal(hostname, 'clone-1');
    assert.ok(Math.abs(Number(seconds) * 1000 - Date.now()) < 10_000);
    assert.equal(await readText(await channel.readFile('/etc/machine-id', soon())), `${machineId}\n`);
    assert.match(await readText(await channel.readFile('/etc/hosts', soon())), /^127\.0\.1\.1 clone-1$/m);
  });

  it('keeps its token from users', async () => {
    assert.match(await deed(channel, 'spy', ['look'], 'guest'), /^1000 \S+ \d+ EACCES EACCES$/);
    const port = await channel.statFile('/proc/cmdline', soon());
    assert.equal(port.mode, 0o400);
  });

  it('carries 8 MiB through an echo and back', async () => {
    await channel.startProcess({ id: 'echo', argv: ['/test-guest', 'echo', String(echoPort)] }, soon());
    const output = await channel.processOutput('echo', 'stdout', { follow: true, ...soon() });
    await once(output, 'data');
    output.destroy();
    const tunnel = await channel.tunnel(echoPort, soon());
    const bytes = randomBytes(8 * 1024 * 1024);
    tunnel.end(bytes);
    const chunks: Buffer[] = [];
    for await (const chunk of tunnel) chunks.push(chunk as Buffer);
    assert.ok(Buffer.concat(chunks).equals(bytes));
  });

  it('kills a process that eats the memory, says so, and lives on', async () => {
    await channel.startProcess({ id: 'eat', argv: ['/test-guest', 'eat'] }, soon());
    const status = await channel.waitProcess('eat', soon());
    assert.deepEqual([status.signal, status.isOutOfMemory], [9, true]);
    assert.equal((await channel.processStatus('echo', soon())).state, 'running');
  });

  it('answers under a fork bomb, and ends it', async () => {
    await channel.startProcess({ id: 'bomb', argv: ['/test-guest', 'bomb'], user: 'guest' }, soon());
    for (let i = 0; i < 100 && (await channel.metrics(soon())).processCount < 150; i++) await sleep(50);
    await deed(channel, 'beside-the-bomb', ['look']).catch((error: unknown) => {
      // Out of processes or memory is an honest answer; silence or a dead agent is not.
      assert.ok(isGatewayError(error, 'conflict'), String(error));
    });
    await channel.deleteProcess('bomb', soon());
    for (let i = 0; i < 200 && (await channel.metrics(soon())).processCount > 120; i++) await sleep(50);
    assert.match(await deed(channel, 'after-the-bomb', ['look']), /^0 /);
  });

  it('ends a timed-out process with what escaped its session and parent', async () => {
    await channel.startProcess({ id: 'escape', argv: ['/test-guest', 'escape'], timeoutMs: 2_000 }, soon());
    const output = await channel.processOutput('escape', 'stdout', { follow: true, ...soon() });
    const pid = Number(await readText(output));
    assert.equal((await channel.waitProcess('escape', soon())).isTimedOut, true);
    for (let i = 0; i < 100; i++) {
      const found = await channel.statFile(`/proc/${pid}`, soon()).catch((error: unknown) => error);
      if (isGatewayError(found, 'file_not_found')) return;
      await sleep(50);
    }
    assert.fail('the daemon still runs');
  });

  it('says disk_full when the scratch disk is, and keeps nothing of that file', async () => {
    const chunks = function* () {
      for (let i = 0; i < 80; i++) yield Buffer.alloc(1024 * 1024, i);
    };
    await assert.rejects(channel.writeFile('/big', Readable.from(chunks()), soon()), (error) =>
      isGatewayError(error, 'disk_full'),
    );
    await channel.writeFile('/small', Buffer.from('fits'), soon());
    assert.equal(await readText(await channel.readFile('/small', soon())), 'fits');
  });

  it('wakes in clones in the middle of a session, knows its processes, and differs after resume', async () => {
    await channel.startProcess({ id: 'before', argv: ['/test-guest', 'look'] }, soon());
    await channel.waitProcess('before', soon());
    const said = await readText(await channel.processOutput('before', 'stdout', soon()));
    channel.close();
    await channel.closed;
    // A session that stops in the middle of a frame: HEADERS promises 8 KiB and brings four bytes.
    const socket = connect({ path: machine.agentSocketPath });
    await once(socket, 'connect');
    await greet(socket, { token, signal });
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');
    socket.write(Buffer.from('00000004000000000000200001040000000182828282', 'hex'));
    socket.resume();
    await sleep(500);
    const paused = await machine.pause();
    await (await paused.saveState()).moveTo(files.statePath);
    await paused.quit();
    socket.destroy();

    const random: string[] = [];
    for (const name of ['one', 'two']) {
      const blank = await vmm.spawnBlank({ id: newMachineId(node), shape, snapshot: files, signal });
      await using clone = await (await blank.load(files.statePath, soon())).resume();
      await using own = await open(clone);
      assert.equal((await own.processStatus('echo', soon())).state, 'running');
      assert.equal(await readText(await own.processOutput('before', 'stdout', soon())), said);
      await own.resume(identity(name), soon());
      assert.match(await deed(own, 'who', ['look']), new RegExp(`^0 ${name} `));
      random.push(await deed(own, 'draw', ['draw']));
      const tunnel = await own.tunnel(echoPort, soon());
      tunnel.end('still there?');
      assert.equal(await readText(tunnel), 'still there?');
    }
    assert.notEqual(random[0], random[1]);
  });
});
