import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttp2Server, type ServerHttp2Stream } from 'node:http2';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { connectGuest } from './connect.ts';
import type { ConnectOptions, SandboxChannel } from './port.ts';

const token = 'a'.repeat(64);
const soon = (ms = 10_000) => ({ signal: AbortSignal.timeout(ms) });
const isUnreachable = (error: unknown) => isGatewayError(error, 'guest_unreachable');

/** A guest that greets as the agent does, after `stale` bytes, and then answers whatever the handler makes up. */
async function fakeGuest(
  handler: (stream: ServerHttp2Stream, headers: Record<string, unknown>) => void,
  stale: Buffer | 'silence' | 'endless' = Buffer.alloc(0),
  clock = '0000019000000000',
) {
  const directory = await mkdtemp(path.join(tmpdir(), 'snapgate-fake-'));
  const socketPath = path.join(directory, 'socket');
  const http2 = createHttp2Server();
  http2.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    handler(stream, headers as Record<string, unknown>);
  });
  http2.on('sessionError', () => {});
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('data', (hello: Buffer) => {
      if (stale === 'silence') return;
      if (stale === 'endless') {
        const flood = () => {
          while (!socket.destroyed && socket.write(Buffer.alloc(64 * 1024, 83)));
        };
        socket.on('drain', flood);
        flood();
        return;
      }
      const nonce = hello.toString('latin1').slice(82, 114);
      socket.write(Buffer.concat([stale, Buffer.from(`SNAPGATE-READY/2 ${nonce} ${clock}\n`)]), () =>
        http2.emit('connection', socket),
      );
    });
  });
  server.listen(socketPath);
  await once(server, 'listening');
  return {
    connect: (options: Pick<ConnectOptions, 'signal' | 'wake'> = soon()) =>
      connectGuest({ socketPath, token, ...options }),
    end: () => {
      for (const socket of sockets) socket.destroy();
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
      await rm(directory, { recursive: true });
    },
  };
}

const answering = (status: number, body: string | Buffer) => (stream: ServerHttp2Stream) => {
  stream.respond({ ':status': status });
  stream.end(body);
};

const calls: Record<string, (channel: SandboxChannel) => Promise<unknown>> = {
  ping: (channel) => channel.ping(soon()),
  metrics: (channel) => channel.metrics(soon()),
  processStatus: (channel) => channel.processStatus('x', soon()),
  listProcesses: (channel) => channel.listProcesses(soon()),
  statFile: (channel) => channel.statFile('/', soon()),
  writeStdin: (channel) => channel.writeStdin('x', Buffer.from('x'), { offset: 0, ...soon() }),
  listFiles: async (channel) => {
    for await (const _ of await channel.listFiles('/', soon()));
    throw new Error('the list was taken');
  },
};

describe('a guest that lies', () => {
  it('greets only after stale output of a former session, and is heard', async () => {
    const stale = Buffer.concat([
      Buffer.alloc(300_000, 7),
      Buffer.from('SNAPGATE-READY/2 '),
      Buffer.alloc(49, 48),
    ]);
    const pong = JSON.stringify({ version: '0', protocol: 2, uptimeMs: 0, wallClockMs: 0 });
    await using guest = await fakeGuest(answering(200, pong), stale);
    await using channel = await guest.connect();
    assert.deepEqual(await channel.ping(soon()), { version: '0', protocol: 2 });
  });

  it('never greets, or floods us instead, and is given up', async () => {
    await using silent = await fakeGuest(() => {}, 'silence');
    await assert.rejects(silent.connect(soon(100)), isUnreachable);
    await using flooding = await fakeGuest(() => {}, 'endless');
    await assert.rejects(flooding.connect(), isUnreachable);
  });

  it('greets with a clock that is none, or could not be woken, and is not used', async () => {
    const wake = { leadMs: 0 };
    await using odd = await fakeGuest(() => {}, Buffer.alloc(0), '-000019000000000');
    await assert.rejects(odd.connect(), isUnreachable);
    await using asleep = await fakeGuest(() => {}, Buffer.alloc(0), '0'.repeat(16));
    await assert.rejects(asleep.connect({ ...soon(), wake }), (error) =>
      isGatewayError(error, 'restore_failed'),
    );
  });

  for (const [name, body] of [
    ['nothing', ''],
    ['no JSON', 'null and void'],
    ['the wrong shape', '{"id":"x","unexpected":true}\n'],
    ['numbers out of range', '{"offset":-1,"version":1}\n'],
    ['a list of a million', JSON.stringify(Array.from({ length: 60_000 }, () => ({ id: 'x' })))],
  ] as const) {
    it(`answers ${name} and is not believed`, async () => {
      await using guest = await fakeGuest(answering(200, body));
      await using channel = await guest.connect();
      for (const [call, run] of Object.entries(calls)) {
        if (name === 'nothing' && call === 'listFiles') continue;
        await assert.rejects(run(channel), isUnreachable, `${call} believed ${name}`);
      }
    });
  }

  it('refuses with an essay, and only a short printable message is kept', async () => {
    const essay = JSON.stringify({ error: 'not_found', message: `\u001b[31m${'x'.repeat(10_000)}` });
    await using guest = await fakeGuest(answering(404, essay));
    await using channel = await guest.connect();
    await assert.rejects(channel.processStatus('x', soon()), (error) => {
      assert.ok(isGatewayError(error, 'process_not_found'));
      assert.ok(error.message.length <= 200 && /^[\x20-\x7e]+$/.test(error.message));
      return true;
    });
  });

  it('answers a code we do not know, and that is our internal error', async () => {
    await using guest = await fakeGuest(answering(418, '{"error":"__proto__","message":1}'));
    await using channel = await guest.connect();
    await assert.rejects(channel.ping(soon()), (error) => isGatewayError(error, 'internal'));
  });

  it('has a file that is larger than a number can tell, and the listing goes on (/proc/kcore is 64 PiB)', async () => {
    const row = { name: 'x', type: 'file', mode: 0o400, uid: 0, gid: 0, user: 'root', group: 'root' };
    const rows = ['72057594037927936', '9223372036854775807', '7'].map(
      (size) => `${JSON.stringify({ ...row, path: '/x' }).slice(0, -1)},"size":${size},"mtimeMs":-9e18}\n`,
    );
    await using guest = await fakeGuest(answering(200, rows.join('')));
    await using channel = await guest.connect();
    const sizes: number[] = [];
    for await (const { size, mtimeMs } of await channel.listFiles('/proc', soon())) {
      sizes.push(size);
      assert.equal(mtimeMs, Number.MIN_SAFE_INTEGER);
    }
    assert.deepEqual(sizes, [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, 7]);
  });

  it('sends an endless line, or a body without end, and is cut off', async () => {
    await using guest = await fakeGuest((stream) => {
      stream.respond({ ':status': 200 });
      const pump = () => {
        while (!stream.destroyed && stream.write(Buffer.alloc(16_384, 120)));
      };
      stream.on('drain', pump);
      pump();
    });
    await using channel = await guest.connect();
    await assert.rejects(calls.listFiles!(channel), isUnreachable);
    await assert.rejects(channel.ping(soon()), isUnreachable);
  });

  it('does not answer, and the call ends with its signal', async () => {
    await using guest = await fakeGuest(() => {});
    await using channel = await guest.connect();
    await assert.rejects(channel.ping(soon(50)), isUnreachable);
    await assert.rejects(channel.ping({ signal: AbortSignal.abort() }), (error) =>
      isGatewayError(error, 'cancelled'),
    );
  });

  it('does not say where its output begins, or tells what can not be, and the body is given up', async () => {
    for (const offset of [undefined, '', '-1', '1e3', '4', '9'.repeat(16)]) {
      const closed = Promise.withResolvers<void>();
      await using guest = await fakeGuest((stream) => {
        stream.respond({ ':status': 200, ...(offset === undefined ? {} : { 'x-agent-offset': offset }) });
        stream.write('output');
        stream.once('close', closed.resolve);
      });
      await using channel = await guest.connect();
      const told = channel.processOutput('x', 'stdout', { offset: 5, follow: true, ...soon() });
      await assert.rejects(told, isUnreachable, `${offset} was believed`);
      await closed.promise;
    }
  });

  it('dies in the middle of an answer, and every call and stream says so', async () => {
    await using guest = await fakeGuest((stream) => {
      stream.respond({ ':status': 200, 'x-agent-offset': '0' });
      stream.write('{"type":"write","path":"/x"}\n');
    });
    await using channel = await guest.connect();
    const events = await channel.watchFiles('/', soon());
    const output = await channel.processOutput('x', 'stdout', { follow: true, ...soon() });
    const watching = assert.rejects(async () => {
      for await (const _ of events);
    }, isUnreachable);
    const reading = assert.rejects(output.toArray(), isUnreachable);
    const pinging = assert.rejects(channel.ping(soon()), isUnreachable);
    setTimeout(() => guest.end(), 50);
    await Promise.all([watching, reading, pinging, channel.closed]);
    await assert.rejects(channel.ping(soon()), isUnreachable);
  });
});
