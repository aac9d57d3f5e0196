import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { GatewayError, type SandboxId, type SandboxInfo } from '../../sdk/index.ts';
import type { SandboxChannel } from '../guest/index.ts';
import { startTestAgent } from '../guest/test-agent.ts';
import { all, fails, machine, type OpenSandboxes, scriptedSandboxes } from './contract-peers.ts';

const soon = () => ({ signal: AbortSignal.timeout(20_000) });
const never = () => new AbortController().signal;

/** A channel to the real agent, at the far end of what is between. */
async function openChannel(open: OpenSandboxes, sandbox: SandboxInfo) {
  const agent = await startTestAgent();
  const real = await agent.connect();
  const use = async () => ({
    ...{ machine, sandbox, env: {}, channel: real, signal: never() },
    tunnel: (port: number) => real.tunnel(port, soon()),
    [Symbol.dispose]() {},
  });
  const pair = await open(scriptedSandboxes({ use }));
  const held = await pair.client.use(sandbox.id as SandboxId, soon());
  held[Symbol.dispose]();
  return {
    ...{ agent, real, use: held },
    channel: held.channel as SandboxChannel,
    async [Symbol.asyncDispose]() {
      await pair[Symbol.asyncDispose]();
      real.close();
      await agent[Symbol.asyncDispose]();
    },
  };
}

/** Commands, files and ports of a guest, through a channel whose use has been let go of. */
export function testChannel(open: OpenSandboxes, sandbox: SandboxInfo): void {
  test('a process is started, fed, read from any byte, told of and ended', async () => {
    await using c = await openChannel(open, sandbox);
    const { channel } = c;
    const started = await channel.startProcess(
      {
        id: 'cat',
        argv: ['sh', '-c', 'cat; echo "$A" >&2; exit 3'],
        env: { A: 'b' },
        stdin: true,
        note: 'n',
      },
      soon(),
    );
    assert.deepEqual([started.state, started.note], ['running', 'n']);
    const output = await channel.processOutput('cat', 'stdout', { follow: true, ...soon() });
    assert.equal(output.offset, 0);
    const waiting = channel.waitProcess('cat', soon());
    const write = (bytes: string, more: { offset: number; isLast?: boolean }) =>
      channel.writeStdin('cat', Buffer.from(bytes), { ...more, ...soon() });
    assert.deepEqual(await write('abc', { offset: 0 }), { offset: 3 });
    const pieces = output[Symbol.asyncIterator]();
    assert.equal(String((await pieces.next()).value), 'abc');
    assert.equal((await fails(write('gap', { offset: 9 }))).code, 'conflict');
    assert.deepEqual(await write('bcd', { offset: 1, isLast: true }), { offset: 4 });
    assert.equal(String((await pieces.next()).value), 'd');
    assert.ok((await pieces.next()).done);
    assert.equal((await waiting).exitCode, 3);
    assert.deepEqual(await channel.processStatus('cat', soon()), await c.real.processStatus('cat', soon()));
    assert.equal((await channel.listProcesses(soon())).length, 1);
    const tail = await channel.processOutput('cat', 'stdout', { offset: -1, ...soon() });
    assert.deepEqual([tail.offset, await text(tail)], [3, 'd']);
    await channel.deleteProcess('cat', soon());
    assert.equal((await fails(channel.processStatus('cat', soon()))).code, 'process_not_found');

    await channel.startProcess({ id: 'tty', argv: ['sleep', '100'], pty: { cols: 80, rows: 24 } }, soon());
    await channel.resizeTerminal('tty', { cols: 90, rows: 30 }, soon());
    await channel.signalProcess('tty', 15, soon());
    assert.equal((await channel.waitProcess('tty', soon())).signal, 15);
  });

  test('a reader that leaves is gone at the guest too, and a call ends with its signal', async () => {
    await using c = await openChannel(open, sandbox);
    await c.channel.startProcess({ id: 'flood', argv: ['sh', '-c', 'yes'] }, soon());
    const output = await c.channel.processOutput('flood', 'stdout', { follow: true, ...soon() });
    await once(output, 'data');
    output.destroy();
    const stop = new AbortController();
    const waiting = fails(c.channel.waitProcess('flood', { signal: stop.signal }));
    stop.abort(new GatewayError('cancelled', 'gone'));
    assert.equal((await waiting).code, 'cancelled');
    while (((await c.channel.processStatus('flood', soon())).stdoutBytes ?? 0) < 2_000_000);
    const late = await c.channel.processOutput('flood', 'stdout', { follow: true, ...soon() });
    assert.ok(late.offset > 0, 'its beginning is no longer retained');
    await c.channel.deleteProcess('flood', soon());
    late.destroy();
  });

  test('files go both ways as streams, in part and as another user, and say why they do not', async () => {
    await using c = await openChannel(open, sandbox);
    const { channel } = c;
    const at = (name: string) => `${c.agent.directory}/${name}`;
    const bytes = Buffer.alloc(3_000_000, 'content ');
    await channel.writeFile(at('dir/big'), Readable.from([bytes], { objectMode: false }), {
      mode: 0o640,
      ...soon(),
    });
    await channel.writeFile(at('empty'), Buffer.alloc(0), soon());
    assert.ok(Buffer.concat(await (await channel.readFile(at('dir/big'), soon())).toArray()).equals(bytes));
    const part = await channel.readFile(at('dir/big'), { offset: 8, length: 7, ...soon() });
    assert.equal(await text(part), 'content');
    const row = await channel.statFile(at('dir/big'), soon());
    assert.deepEqual(row, await c.real.statFile(at('dir/big'), soon()));
    assert.equal(row.mode, 0o640);
    await channel.makeDirectory(at('made'), { mode: 0o700, ...soon() });
    await channel.moveFile(at('empty'), at('made/moved'), soon());
    const rows = await all(await channel.listFiles(c.agent.directory, { depth: 2, ...soon() }));
    const names = rows
      .filter(({ type }) => type !== 'socket')
      .map(({ path }) => path.slice(c.agent.directory.length));
    assert.deepEqual(names.sort(), ['/dir', '/dir/big', '/made', '/made/moved']);
    assert.equal((await fails(channel.deleteFile(at('made'), soon()))).code, 'conflict');
    await channel.deleteFile(at('made'), { isRecursive: true, ...soon() });
    assert.equal((await fails(channel.readFile(at('made/moved'), soon()))).code, 'file_not_found');

    const broken = new PassThrough();
    broken.write('half');
    const failed = fails(channel.writeFile(at('dir/big'), broken, soon()));
    broken.destroy(new GatewayError('body_too_large', 'the source says no'));
    assert.equal((await failed).code, 'body_too_large');
    assert.equal((await channel.statFile(at('dir/big'), soon())).size, bytes.length);
    const endless = new Readable({ read: () => void endless.push(Buffer.alloc(16_384)) });
    const refused = await fails(channel.writeFile(`${at('dir/big')}/below`, endless, soon()));
    assert.equal(refused.code, 'conflict');
    endless.destroy();
  });

  test('a watch tells what happens, and ends when its reader does', async () => {
    await using c = await openChannel(open, sandbox);
    const events = await c.channel.watchFiles(c.agent.directory, { isRecursive: true, ...soon() });
    await c.channel.writeFile(`${c.agent.directory}/seen`, Buffer.from('x'), soon());
    for await (const event of events) if (event.path.endsWith('/seen')) break;
    const { memoryTotalBytes } = await c.channel.metrics(soon());
    assert.ok(memoryTotalBytes > 0);
    await c.channel.sync(soon());
    assert.deepEqual(await c.channel.ping(soon()), await c.real.ping(soon()));
  });

  test('a tunnel carries bytes and half-closes, or says why there is none', async () => {
    await using c = await openChannel(open, sandbox);
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('end', () => socket.end('heard')).resume();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    for (const tunnel of [await c.channel.tunnel(port, soon()), await c.use.tunnel(port)]) {
      tunnel.end('all of it');
      assert.equal(await text(tunnel), 'heard');
    }
    server.close();
    await once(server, 'close');
    assert.equal((await fails(c.channel.tunnel(port, soon()))).code, 'function_port_closed');
  });

  test('a channel that was cut is unreachable, and a body through it fails', async () => {
    await using c = await openChannel(open, sandbox);
    await c.channel.startProcess({ id: 'lasting', argv: ['sh', '-c', 'echo begun; sleep 100'] }, soon());
    const output = await c.channel.processOutput('lasting', 'stdout', { follow: true, ...soon() });
    await once(output, 'data');
    const reading = fails(output.toArray());
    c.real.close();
    assert.equal((await reading).code, 'guest_unreachable');
    assert.equal((await fails(c.channel.ping(soon()))).code, 'guest_unreachable');
  });
}
