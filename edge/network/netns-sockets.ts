/** Sockets in other network namespaces, by way of a small native process that opens them and passes them here. */
import { type ChildProcess, spawn } from 'node:child_process';
import dgram from 'node:dgram';
import net from 'node:net';
import { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';

/** The caller owns what it gets. Each throws `host_not_ready` with the errno's name when the socket could not be opened. */
export interface NetnsSockets extends AsyncDisposable {
  /** A listener that also takes connections to foreign addresses, where the kernel steers them to it. */
  listen(netns: string, address: string, port: number): Promise<net.Server>;
  udp(netns: string, address: string, port: number): Promise<dgram.Socket>;
  /** An unconnected socket; `address` (an IP literal) is connected to by `socket.connect`. */
  connect(netns: string, address: string, port: number): Promise<net.Socket>;
}

export interface NetnsSocketsOptions {
  /** The native program, see `native/netns-sockets.c`. */
  readonly helperPath: string;
}

const answerSchema = z.object({ id: z.int(), error: z.string().max(32).optional() });
type Kind = 'listen' | 'udp' | 'connect';
type Waiting = PromiseWithResolvers<unknown>;

/** Most requests under way at once. */
const maxWaiting = 1024;

/** Starts the native process with the first request, and again should it end. */
export function createNetnsSockets(options: NetnsSocketsOptions): NetnsSockets {
  let child: ChildProcess | null = null;
  let isDisposed = false;
  let lastId = 0;
  const waiting = new Map<number, Waiting>();

  function start(): ChildProcess {
    const started = spawn(options.helperPath, [], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'], env: {} });
    const over = (cause?: unknown) => {
      if (child === started) child = null;
      const all = [...waiting.values()];
      waiting.clear();
      for (const each of all) each.reject(failure('the process that opens sockets ended', cause));
    };
    started.once('error', over);
    started.once('exit', () => over());
    started.on('message', (message: unknown, handle: unknown) => {
      const answer = answerSchema.safeParse(message);
      const found = answer.success ? waiting.get(answer.data.id) : undefined;
      if (!answer.success || found === undefined) return;
      waiting.delete(answer.data.id);
      if (answer.data.error === undefined) found.resolve(handle);
      else found.reject(failure(`could not open a socket in a slot: ${answer.data.error}`));
    });
    // It must not keep the edge alive.
    started.unref();
    started.channel?.unref();
    return started;
  }

  async function request(kind: Kind, netns: string, address: string, port: number): Promise<never> {
    if (isDisposed) throw failure('no more sockets: the edge is stopping');
    if (waiting.size >= maxWaiting) throw failure('too many sockets are being opened');
    child ??= start();
    lastId = (lastId + 1) % 1_000_000_000;
    const entry: Waiting = Promise.withResolvers();
    waiting.set(lastId, entry);
    child.send(`${lastId} ${kind} ${netns} ${address} ${port}`, (error) => {
      if (error !== null) entry.reject(failure('the process that opens sockets does not answer', error));
    });
    return (await entry.promise) as never;
  }

  return {
    async listen(netns, address, port) {
      const handle = await request('listen', netns, address, port);
      const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true });
      return await new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(handle, () => {
          server.off('error', reject);
          resolve(server);
        });
      });
    },
    async udp(netns, address, port) {
      const handle = await request('udp', netns, address, port);
      const socket = dgram.createSocket(address.includes(':') ? 'udp6' : 'udp4');
      return await new Promise((resolve, reject) => {
        socket.once('error', reject);
        socket.bind(handle, () => {
          socket.off('error', reject);
          resolve(socket);
        });
      });
    },
    async connect(netns, address, port) {
      const handle = await request('connect', netns, address, port);
      // `handle` and `manualStart` are how Node itself wraps a descriptor; without the latter it would read at once.
      return new net.Socket({ handle, manualStart: true, allowHalfOpen: true } as net.SocketConstructorOpts);
    },
    async [Symbol.asyncDispose]() {
      isDisposed = true;
      const running = child;
      if (running === null) return;
      const ended = new Promise<void>((resolve) => running.once('exit', () => resolve()));
      running.ref();
      running.kill('SIGKILL');
      await ended;
    },
  };
}

const failure = (message: string, cause?: unknown) =>
  new GatewayError('host_not_ready', message, {
    component: 'edge',
    ...(cause === undefined ? {} : { cause }),
  });
