import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isGatewayError } from '../../sdk/index.ts';
import { connectGuest } from './connect.ts';
import { readText, startTestAgent, type TestAgent } from './test-agent.ts';

const soon = () => ({ signal: AbortSignal.timeout(10_000) });

function hello(token: string, nonce: string, clock = '0'.repeat(16)): Buffer {
  const fields = [token, nonce, clock, 'ab'.repeat(64)].join(' ');
  return Buffer.from(`SNAPGATE-HELLO/2 ${fields}\n\n\n\n\n\n`, 'latin1');
}

/** What a host sees that said hello with this nonce: nothing before, nothing after. */
const greeting = (nonce: string) => new RegExp(`^SNAPGATE-READY/2 ${nonce} [0-9a-f]{16}\\n$`);
const greetingBytes = 67;

/** A connection that collects what it is sent. */
async function rawConnection(socketPath: string): Promise<{ socket: Socket; seen: () => string }> {
  const socket = connect({ path: socketPath });
  let seen = '';
  socket.on('data', (chunk: Buffer) => {
    seen += chunk.toString('latin1');
  });
  socket.on('error', () => {});
  await once(socket, 'connect');
  return { socket, seen: () => seen };
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !condition(); i++) await sleep(10);
  assert.ok(condition(), 'the condition never came true');
}

describe('the preamble', () => {
  let agent: TestAgent;
  before(async () => {
    agent = await startTestAgent();
  });
  after(() => agent.stop());

  it('is answered with its own nonce, and with nothing more before the HTTP/2 preface', async () => {
    const { socket, seen } = await rawConnection(agent.socketPath);
    const nonce = randomBytes(16).toString('hex');
    socket.write(hello(agent.token, nonce));
    await until(() => seen().length >= greetingBytes);
    await sleep(50);
    assert.match(seen(), greeting(nonce));
    socket.destroy();
  });

  it('is found when it comes byte by byte behind garbage and half a preamble', async () => {
    const { socket, seen } = await rawConnection(agent.socketPath);
    const nonce = randomBytes(16).toString('hex');
    socket.write(Buffer.concat([randomBytes(300), hello(agent.token, nonce).subarray(0, 40)]));
    for (const byte of hello(agent.token, nonce)) {
      socket.write(Buffer.of(byte));
      await sleep(1);
    }
    await until(() => seen().slice(-greetingBytes).startsWith(`SNAPGATE-READY/2 ${nonce} `));
    socket.destroy();
  });

  it('with a wrong token or a malformed nonce is ignored', async () => {
    const { socket, seen } = await rawConnection(agent.socketPath);
    const nonce = randomBytes(16).toString('hex');
    const nearly = `${agent.token.slice(0, 63)}${agent.token.endsWith('0') ? '1' : '0'}`;
    socket.write(hello(nearly, nonce));
    socket.write(hello(agent.token, 'Z'.repeat(32)));
    socket.write(hello(agent.token, nonce));
    await until(() => seen().length >= greetingBytes);
    assert.match(seen(), greeting(nonce));
    socket.destroy();
  });

  it('ends a session in the middle of a frame, on the same connection', async () => {
    const { socket, seen } = await rawConnection(agent.socketPath);
    const first = randomBytes(16).toString('hex');
    const second = randomBytes(16).toString('hex');
    socket.write(hello(agent.token, first));
    // The preface, empty SETTINGS, and a HEADERS frame that promises more than it brings.
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');
    socket.write(Buffer.from('000000040000000000002000010400000001828282', 'hex'));
    await until(() => seen().length > greetingBytes);
    socket.write(hello(agent.token, second));
    await until(() => seen().slice(-greetingBytes).startsWith(`SNAPGATE-READY/2 ${second} `));
    socket.destroy();
  });

  it('is asked for again after a protocol error', async () => {
    const { socket } = await rawConnection(agent.socketPath);
    socket.write(hello(agent.token, randomBytes(16).toString('hex')));
    socket.write('this is not HTTP/2 at all, and long enough to be looked at');
    await once(socket, 'close');
    await using channel = await agent.connect();
    assert.equal((await channel.ping(soon())).protocol, 2);
  });
});

describe('a guest channel', () => {
  let agent: TestAgent;
  before(async () => {
    agent = await startTestAgent();
  });
  after(() => agent.stop());

  it('can be opened twice in a row, and the second replaces the first', async () => {
    const first = await agent.connect();
    await using second = await agent.connect();
    await first.closed;
    assert.equal((await second.ping(soon())).protocol, 2);
    await assert.rejects(first.ping(soon()), (error) => isGatewayError(error, 'guest_unreachable'));
  });

  it('leaves processes and their retained output alone when it is replaced', async () => {
    const first = await agent.connect();
    const argv = ['sh', '-c', 'echo before; read line; echo $line'];
    const { pid } = await first.startProcess({ id: 'survivor', argv, stdin: true }, soon());
    const followed = await first.processOutput('survivor', 'stdout', { follow: true, ...soon() });
    await once(followed, 'data');
    first.close();
    await first.closed;

    await using second = await agent.connect();
    const status = await second.processStatus('survivor', soon());
    assert.deepEqual([status.pid, status.state], [pid, 'running']);
    await second.writeStdin('survivor', Buffer.from('after\n'), { offset: 0, ...soon() });
    const output = await second.processOutput('survivor', 'stdout', { follow: true, ...soon() });
    assert.equal(await readText(output), 'before\nafter\n');
  });

  it('takes a new token from resume and forgets the old one', async () => {
    const token = randomBytes(32).toString('hex');
    {
      await using channel = await agent.connect();
      const report = await channel.resume(
        {
          wallClockMs: Date.now(),
          entropy: randomBytes(32),
          hostname: 'clone-1',
          machineId: 'ab'.repeat(16),
          token,
        },
        soon(),
      );
      // In the test mode the clock is not stepped, so the skew is what a round trip takes.
      assert.ok(Math.abs(report.clockSkewMs) < 5_000);
    }
    const { socket, seen } = await rawConnection(agent.socketPath);
    socket.write(hello(agent.token, '0'.repeat(32)));
    socket.write(hello(token, '1'.repeat(32)));
    await until(() => seen().length >= greetingBytes);
    assert.match(seen(), greeting('1'.repeat(32)));
    socket.destroy();
    await using channel = await agent.connect(token);
    await channel.resume(
      {
        wallClockMs: 0,
        entropy: randomBytes(32),
        hostname: 'x',
        machineId: '0'.repeat(32),
        token: agent.token,
      },
      soon(),
    );
  });

  it('refuses a malformed resume and keeps its token', async () => {
    await using channel = await agent.connect();
    const good = {
      wallClockMs: 1,
      entropy: randomBytes(32),
      hostname: 'a',
      machineId: '0'.repeat(32),
      token: 'c'.repeat(64),
    };
    for (const bad of [
      { entropy: randomBytes(31) },
      { hostname: '-a' },
      { hostname: 'a\nb' },
      { machineId: 'Z'.repeat(32) },
      { token: 'c'.repeat(63) },
      { wallClockMs: 1.5 },
      { wallClockMs: -1 },
    ]) {
      await assert.rejects(channel.resume({ ...good, ...bad }, soon()), (error) =>
        isGatewayError(error, 'invalid_request'),
      );
    }
    await using again = await agent.connect();
    assert.equal((await again.ping(soon())).protocol, 2);
  });

  it('says guest_unreachable where no VMM listens, and cancelled when the caller gives up', async () => {
    const socketPath = `${agent.directory}/nobody.sock`;
    await assert.rejects(connectGuest({ socketPath, token: agent.token, ...soon() }), (error) =>
      isGatewayError(error, 'guest_unreachable'),
    );
    await assert.rejects(
      connectGuest({ socketPath: agent.socketPath, token: agent.token, signal: AbortSignal.abort() }),
      (error) => isGatewayError(error, 'cancelled'),
    );
  });

  it('gives up on a guest that does not answer the preamble when its time is over', async () => {
    await assert.rejects(
      connectGuest({
        socketPath: agent.socketPath,
        token: 'f'.repeat(64),
        signal: AbortSignal.timeout(100),
      }),
      (error) => isGatewayError(error, 'guest_unreachable'),
    );
  });

  it('answers metrics which add up, and syncs', async () => {
    await using channel = await agent.connect();
    const metrics = await channel.metrics(soon());
    assert.ok(metrics.memoryUsedBytes <= metrics.memoryTotalBytes);
    assert.ok(metrics.diskUsedBytes <= metrics.diskTotalBytes);
    assert.ok(metrics.cpuCount >= 1 && metrics.processCount >= 1);
    await channel.sync(soon());
  });
});
