import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, request as httpRequest, type IncomingMessage } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, Pool } from 'undici';
import { isGatewayError } from '../../sdk/index.ts';
import type { SandboxChannel } from './port.ts';
import { descriptorCount, startTestAgent, type TestAgent } from './test-agent.ts';
import { createTunnelConnector } from './tunnel-connector.ts';

const soon = () => ({ signal: AbortSignal.timeout(20_000) });
const mebibyte = 1024 * 1024;

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

async function listen(server: Server, host = '127.0.0.1'): Promise<number> {
  server.listen(0, host);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function close(server: Server): Promise<void> {
  server.close();
  await once(server, 'close');
}

/** A server of raw connections; the handler's connections are destroyed at the end. */
async function rawServer(handler: (socket: Socket) => void, host?: string) {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => {});
    handler(socket);
  });
  const port = await listen(server, host);
  return {
    port,
    sockets,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await close(server);
    },
  };
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (let i = 0; i < 500 && !(await condition()); i++) await sleep(10);
  assert.ok(await condition(), 'the condition never came true');
}

async function read(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

describe('a tunnel', () => {
  it('carries bytes both ways, and half-closes each way apart', async () => {
    await using server = await rawServer((socket) => {
      const parts: Buffer[] = [];
      socket.on('data', (chunk: Buffer) => parts.push(chunk));
      socket.on('end', () => socket.end(`got ${Buffer.concat(parts).toString()}, then the end`));
    });
    const tunnel = await channel.tunnel(server.port, soon());
    tunnel.end('a question');
    assert.equal((await read(tunnel)).toString(), 'got a question, then the end');
    await until(() => server.sockets.size === 0);
  });

  it('still carries our bytes after the server has ended its half', async () => {
    const got: Buffer[] = [];
    await using server = await rawServer((socket) => {
      socket.end('bye');
      socket.on('data', (chunk: Buffer) => got.push(chunk));
    });
    const tunnel = await channel.tunnel(server.port, soon());
    assert.equal((await read(tunnel)).toString(), 'bye');
    tunnel.end(Buffer.alloc(3 * mebibyte, 1));
    await until(() => Buffer.concat(got).length === 3 * mebibyte);
    await until(() => server.sockets.size === 0);
  });

  it('reaches a server that listens on ::1 only', async (context) => {
    const server = await rawServer((socket) => socket.end('six'), '::1').catch(() => null);
    if (server === null) return context.skip('this host has no IPv6');
    await using _ = server;
    const tunnel = await channel.tunnel(server.port, soon());
    tunnel.end();
    assert.equal((await read(tunnel)).toString(), 'six');
  });

  it('to a port where nothing listens is refused by name', async () => {
    const server = createServer();
    const port = await listen(server);
    await close(server);
    await assert.rejects(channel.tunnel(port, soon()), (error) =>
      isGatewayError(error, 'function_port_closed'),
    );
    await assert.rejects(channel.tunnel(0, soon()), (error) => isGatewayError(error, 'invalid_request'));
    await assert.rejects(channel.tunnel(port, { signal: AbortSignal.abort() }), (error) =>
      isGatewayError(error, 'cancelled'),
    );
  });

  it('destroyed here closes the connection there, and an error resets it', async () => {
    const ends: string[] = [];
    await using server = await rawServer((socket) => {
      socket.write('hello');
      socket.on('end', () => {
        ends.push('end');
        socket.end();
      });
      socket.on('error', (error: NodeJS.ErrnoException) => ends.push(String(error.code)));
    });
    const friendly = await channel.tunnel(server.port, soon());
    await once(friendly, 'data');
    friendly.destroy();
    await until(() => ends.length === 1);
    const broken = await channel.tunnel(server.port, soon());
    await once(broken, 'data');
    broken.on('error', () => {});
    broken.destroy(new Error('broken'));
    await until(() => ends.length === 2);
    assert.deepEqual(ends, ['end', 'ECONNRESET']);
  });

  it('reset there is an error here, not an end', async () => {
    await using server = await rawServer((socket) => {
      socket.write('half');
      socket.once('data', () => socket.resetAndDestroy());
    });
    const tunnel = await channel.tunnel(server.port, soon());
    await once(tunnel, 'data');
    tunnel.write('go');
    await assert.rejects(once(tunnel, 'end', soon()), (error) => isGatewayError(error, 'guest_unreachable'));
  });

  it('delivers what a server said before it stopped reading', async () => {
    await using server = await rawServer((socket) => {
      socket.once('data', () => socket.end('enough', () => socket.destroy()));
    });
    const tunnel = await channel.tunnel(server.port, soon());
    tunnel.on('error', () => {});
    tunnel.write(Buffer.alloc(4 * mebibyte));
    const [first] = (await once(tunnel, 'data', soon())) as [Buffer];
    assert.equal(first.toString(), 'enough');
    tunnel.destroy();
  });

  it('that nobody reads holds up neither the others nor the agent', async () => {
    await using server = await rawServer((socket) => {
      socket.on('error', () => {});
      const chunk = Buffer.alloc(64 * 1024);
      const pump = () => {
        while (!socket.destroyed && socket.write(chunk));
      };
      socket.on('drain', pump);
      pump();
    });
    const stalled = await Promise.all(Array.from({ length: 8 }, () => channel.tunnel(server.port, soon())));
    await sleep(200);
    assert.equal((await channel.ping(soon())).protocol, 2);
    const lively = await channel.tunnel(server.port, soon());
    let size = 0;
    for await (const chunk of lively) {
      size += (chunk as Buffer).length;
      if (size > 8 * mebibyte) break;
    }
    for (const tunnel of stalled) tunnel.destroy();
    await until(() => server.sockets.size === 0);
  });

  it('whose server reads nothing stops the writer, not the channel', async () => {
    await using server = await rawServer((socket) => socket.pause());
    const tunnel = await channel.tunnel(server.port, soon());
    tunnel.on('error', () => {});
    let written = 0;
    while (written < 64 * mebibyte && tunnel.write(Buffer.alloc(64 * 1024))) written += 64 * 1024;
    for (let i = 0; i < 20; i++) {
      await sleep(10);
      while (written < 64 * mebibyte && !tunnel.writableNeedDrain) {
        tunnel.write(Buffer.alloc(64 * 1024));
        written += 64 * 1024;
      }
    }
    assert.ok(written < 32 * mebibyte, `${written} bytes were taken`);
    assert.equal((await channel.ping(soon())).protocol, 2);
    tunnel.destroy();
    for (const socket of server.sockets) socket.on('end', () => socket.end()).resume();
    await until(() => server.sockets.size === 0);
  });

  it('ends with an error when the channel goes away', async () => {
    await using server = await rawServer((socket) => socket.write('x'));
    await using other = await startTestAgent();
    const own = await other.connect();
    const tunnel = await own.tunnel(server.port, soon());
    await once(tunnel, 'data');
    const failing = assert.rejects(once(tunnel, 'end', soon()), (error) => isGatewayError(error));
    own.close();
    await failing;
    await until(() => server.sockets.size === 0);
  });
});

describe('undici over tunnels', () => {
  let server: Server;
  let port: number;
  let connections: number;
  const answer = (request: IncomingMessage, respond: (body: Buffer | string) => void) => {
    if (request.url === '/download') respond(Buffer.alloc(8 * mebibyte, 7));
    else
      read(request).then(
        (body) => respond(createHash('sha256').update(body).digest('hex')),
        () => {},
      );
  };
  before(async () => {
    connections = 0;
    const http = createHttpServer((request, response) => answer(request, (body) => response.end(body)));
    http.on('connection', () => {
      connections++;
    });
    http.on('upgrade', (_request, socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n');
      socket.pipe(socket);
    });
    server = http;
    port = await listen(server);
  });
  after(() => close(server));

  it('keeps its connection over 100 requests in a row', async () => {
    const client = new Client('http://guest', { connect: createTunnelConnector(channel, port) });
    const before = connections;
    const empty = createHash('sha256').digest('hex');
    for (let i = 0; i < 100; i++) {
      const { statusCode, body } = await client.request({ path: '/', method: 'GET' });
      assert.deepEqual([statusCode, await body.text()], [200, empty]);
    }
    assert.equal(connections - before, 1);
    await client.close();
  });

  it('ends its connections as a client does that has no more to ask', async () => {
    const ends: string[] = [];
    const note = (socket: Socket) =>
      socket
        .once('end', () => ends.push('end'))
        .once('error', (error: NodeJS.ErrnoException) => ends.push(String(error.code)));
    server.on('connection', note);
    for (const finish of ['close', 'destroy'] as const) {
      const client = new Client('http://guest', { connect: createTunnelConnector(channel, port) });
      await (await client.request({ path: '/', method: 'GET' })).body.dump();
      await client[finish]();
    }
    await until(() => ends.length === 2);
    server.off('connection', note);
    assert.deepEqual(ends, ['end', 'end']);
  });

  it('runs 20 requests at once, each with a body of its own', async () => {
    const pool = new Pool('http://guest', { connect: createTunnelConnector(channel, port), connections: 20 });
    await Promise.all(
      Array.from({ length: 20 }, async () => {
        const bytes = randomBytes(300_000);
        const { body } = await pool.request({ path: '/', method: 'POST', body: bytes });
        assert.equal(await body.text(), createHash('sha256').update(bytes).digest('hex'));
      }),
    );
    await pool.close();
  });

  it('moves 8 MiB up and 8 MiB down unchanged', async () => {
    const client = new Client('http://guest', { connect: createTunnelConnector(channel, port) });
    const bytes = randomBytes(8 * mebibyte);
    const up = await client.request({ path: '/', method: 'PUT', body: Readable.from([bytes]) });
    assert.equal(await up.body.text(), createHash('sha256').update(bytes).digest('hex'));
    const down = await client.request({ path: '/download', method: 'GET' });
    assert.ok(Buffer.from(await down.body.arrayBuffer()).equals(Buffer.alloc(8 * mebibyte, 7)));
    await client.close();
  });

  it('can abort an upload and a download, and goes on', async () => {
    const pool = new Pool('http://guest', { connect: createTunnelConnector(channel, port), connections: 2 });
    const stop = new AbortController();
    const body = new PassThrough();
    body.write('start');
    const upload = pool.request({ path: '/', method: 'POST', body, signal: stop.signal });
    await sleep(50);
    stop.abort();
    await assert.rejects(upload);
    const { body: half } = await pool.request({ path: '/download', method: 'GET' });
    for await (const _ of half) break;
    const { body: last } = await pool.request({ path: '/', method: 'GET' });
    assert.equal((await last.text()).length, 64);
    await pool.destroy();
  });

  it('says function_port_closed when nothing listens', async () => {
    const client = new Client('http://guest', { connect: createTunnelConnector(channel, 1) });
    await assert.rejects(client.request({ path: '/', method: 'GET' }), (error) =>
      isGatewayError(error, 'function_port_closed'),
    );
    await client.destroy();
  });

  it('leaves room for node:http to upgrade a tunnel', async () => {
    const tunnel = await channel.tunnel(port, soon());
    const request = httpRequest({
      createConnection: () => tunnel,
      headers: { host: 'guest', connection: 'upgrade', upgrade: 'echo' },
    });
    request.end();
    const [, socket] = (await once(request, 'upgrade', soon())) as [IncomingMessage, Socket];
    socket.end('there and back');
    assert.equal((await read(socket)).toString(), 'there and back');
  });

  it('leaves no stream, socket or descriptor behind', async () => {
    await using fresh = await startTestAgent();
    await using own = await fresh.connect();
    await own.ping(soon());
    const before = await descriptorCount(fresh.pid);
    for (let round = 0; round < 5; round++) {
      const pool = new Pool('http://guest', { connect: createTunnelConnector(own, port), connections: 10 });
      const stop = new AbortController();
      const requests = Array.from({ length: 30 }, (_, i) =>
        pool
          .request({ path: i % 2 === 0 ? '/download' : '/', method: 'GET', signal: stop.signal })
          .then(async ({ body }) => {
            if (i % 3 === 0) await body.dump();
            else await body.text();
          }),
      );
      if (round % 2 === 0) await Promise.all(requests);
      else stop.abort();
      await Promise.allSettled(requests);
      await pool.destroy();
    }
    await until(async () => (await descriptorCount(fresh.pid)) <= before);
  });
});
