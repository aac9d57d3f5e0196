/** What a guest does in tests: connections and questions from inside its namespace, with their outcome as one word. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import tls from 'node:tls';
import dnsPacket, { type DecodedPacket, type RecordType } from 'dns-packet';
import { guestLink } from '../slot/layout.ts';
import type { World } from './world.ts';

/** The bytes with which a TLS client of this name begins. */
export async function clientHello(servername: string | undefined): Promise<Buffer> {
  const written = Promise.withResolvers<Buffer>();
  const wire = new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      written.resolve(chunk);
      done();
    },
  });
  const client = tls.connect({ socket: wire, ...(servername === undefined ? {} : { servername }) });
  client.on('error', () => {});
  const bytes = await written.promise;
  client.destroy();
  return bytes;
}

/** Sends bytes (or waits to be spoken to) and reports the first answer, or the error code with which it was refused. */
export async function talk(
  world: World,
  netns: string,
  address: string,
  port: number,
  bytes: Buffer | string,
): Promise<string> {
  const socket = await world.sockets.connect(netns, address, port);
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.setTimeout(5000, () => resolve('hangs'));
  socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.on('data', (data: Buffer) => resolve(data.toString('latin1')));
  socket.on('end', () => resolve('ended'));
  socket.connect({ host: address, port }, () => socket.write(bytes));
  const outcome = await promise;
  socket.destroy();
  return outcome;
}

export interface Speaker {
  /** Ends it and its connections. */
  close(): void;
}

/** A server in the internet that says its own address to whoever speaks. */
export async function speaker(world: World, address: string, port: number): Promise<Speaker> {
  const sockets = new Set<Socket>();
  const server = await world.sockets.listen(world.internet, address, port);
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    const text = `hi from ${socket.localAddress}`;
    socket.once('data', () =>
      socket.write(port === 80 ? `HTTP/1.1 200 OK\r\ncontent-length: ${text.length}\r\n\r\n${text}` : text),
    );
    socket.resume();
  });
  return {
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

/** Asks the slot's resolver, or another one. Null when it does not answer: within a second where no answer is expected. */
export async function ask(
  world: World,
  netns: string,
  name: string,
  type: RecordType,
  server: string = guestLink.gateway,
): Promise<DecodedPacket | null> {
  const socket = await world.sockets.udp(netns, guestLink.address, 0);
  try {
    socket.on('error', () => {});
    const answer = once(socket, 'message', {
      signal: AbortSignal.timeout(server === guestLink.gateway ? 10_000 : 1000),
    });
    socket.send(
      dnsPacket.encode({
        type: 'query',
        id: 7,
        flags: dnsPacket.RECURSION_DESIRED,
        questions: [{ type, name }],
      }),
      53,
      server,
    );
    const [bytes] = (await answer) as [Buffer];
    return dnsPacket.decode(bytes);
  } catch {
    return null;
  } finally {
    socket.close();
  }
}
