/** Calls into guests that came over HTTP. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { GatewayError, type MachineId } from '../../sdk/index.ts';
import type { SandboxChannel } from '../guest/index.ts';
import {
  type ChannelArgs,
  type ChannelMethod,
  type ChannelResult,
  channelCalls,
  channelHeadSchema,
  channelTunnelSchema,
} from './http-channel-wire.ts';
import { jsonFrame } from './http-frames.ts';
import {
  abortWhenClosed,
  bodyBehind,
  joinDuplexes,
  readHead,
  sendBody,
  serveInFrames,
} from './http-server-calls.ts';
import { TunnelEnd } from './http-tunnel.ts';
import { encodeError, toEdgeError, tunnelProtocol } from './http-wire.ts';

/** Channels that gateways have been told of; forgets each one as it closes. */
export class ChannelDirectory {
  readonly #channels = new Map<MachineId, SandboxChannel>();

  note(machine: MachineId, channel: SandboxChannel): void {
    if (this.#channels.get(machine) === channel) return;
    this.#channels.set(machine, channel);
    void channel.closed.then(() => {
      if (this.#channels.get(machine) === channel) this.#channels.delete(machine);
    });
  }

  /** @throws GatewayError `guest_unreachable`, as from a channel that was closed */
  find(machine: MachineId): SandboxChannel {
    const channel = this.#channels.get(machine);
    if (channel !== undefined) return channel;
    throw new GatewayError('guest_unreachable', 'the guest channel is closed', { component: 'guest' });
  }
}

interface Answer<M extends ChannelMethod> {
  readonly result: ChannelResult<M>;
  readonly body?: Readable;
}

type Serve = {
  readonly [M in ChannelMethod]: (
    channel: SandboxChannel,
    args: ChannelArgs<M>,
    options: { readonly signal: AbortSignal },
    body: Readable,
  ) => Promise<Answer<M>>;
};

/** Bytes of one call of input; what a gateway takes from its client at once. */
const maxStdinBytes = 1024 * 1024;

const serve: Serve = {
  ping: async (channel, _, options) => ({ result: await channel.ping(options) }),
  startProcess: async (channel, { spec }, options) => ({
    result: await channel.startProcess(spec as Parameters<SandboxChannel['startProcess']>[0], options),
  }),
  listProcesses: async (channel, _, options) => ({ result: await channel.listProcesses(options) }),
  processStatus: async (channel, { id }, options) => ({ result: await channel.processStatus(id, options) }),
  waitProcess: async (channel, { id }, options) => ({ result: await channel.waitProcess(id, options) }),
  processOutput: async (channel, { id, stream, ...more }, options) => {
    const body = await channel.processOutput(id, stream, { ...defined(more), ...options });
    return { result: { offset: body.offset }, body };
  },
  signalProcess: async (channel, { id, signalNumber }, options) =>
    done(channel.signalProcess(id, signalNumber, options)),
  resizeTerminal: async (channel, { id, ...size }, options) =>
    done(channel.resizeTerminal(id, size, options)),
  deleteProcess: async (channel, { id }, options) => done(channel.deleteProcess(id, options)),
  writeStdin: async (channel, { id, offset, ...more }, options, body) => ({
    result: await channel.writeStdin(id, await readAll(body), { offset, ...defined(more), ...options }),
  }),
  writeFile: async (channel, { path, ...more }, options, body) =>
    done(channel.writeFile(path, body, { ...defined(more), ...options })),
  readFile: async (channel, { path, ...more }, options) => ({
    result: null,
    body: await channel.readFile(path, { ...defined(more), ...options }),
  }),
  statFile: async (channel, { path, ...more }, options) => ({
    result: await channel.statFile(path, { ...defined(more), ...options }),
  }),
  listFiles: async (channel, { path, ...more }, options) => ({
    result: null,
    body: lines(await channel.listFiles(path, { ...defined(more), ...options })),
  }),
  makeDirectory: async (channel, { path, ...more }, options) =>
    done(channel.makeDirectory(path, { ...defined(more), ...options })),
  moveFile: async (channel, { from, to, ...more }, options) =>
    done(channel.moveFile(from, to, { ...defined(more), ...options })),
  deleteFile: async (channel, { path, ...more }, options) =>
    done(channel.deleteFile(path, { ...defined(more), ...options })),
  watchFiles: async (channel, { path, ...more }, options) => ({
    result: null,
    body: lines(await channel.watchFiles(path, { ...defined(more), ...options })),
  }),
  metrics: async (channel, _, options) => ({ result: await channel.metrics(options) }),
  sync: async (channel, _, options) => done(channel.sync(options)),
};

/** Answers in frames, errors included. Never rejects. */
export function serveChannelCall(
  channels: ChannelDirectory,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  return serveInFrames(incoming, response, async (signal) => {
    const { head, rest } = await readHead(incoming, channelHeadSchema);
    const channel = channels.find(head.machine);
    const body = bodyBehind(incoming, rest, response);
    if (!head.hasBody) body.resume();
    const answer = await callOf(channel, head.method, head.args, signal, body);
    if (response.destroyed) {
      answer.body?.on('error', ignoreError).destroy();
      return;
    }
    response.write(jsonFrame('head', { result: answer.result }));
    if (answer.body === undefined) response.end(jsonFrame('trailers', []));
    else sendBody(answer.body, () => [], response, signal);
  });
}

function callOf<M extends ChannelMethod>(
  channel: SandboxChannel,
  method: M,
  args: unknown,
  signal: AbortSignal,
  body: Readable,
): Promise<Answer<M>> {
  const parsed = channelCalls[method].args.parse(args) as ChannelArgs<M>;
  return serve[method](channel, parsed, { signal }, body);
}

/** Takes over a socket that asked for {@link tunnelProtocol}. Never rejects. */
export async function serveChannelTunnel(
  channels: ChannelDirectory,
  socket: Socket,
  first: Buffer,
): Promise<void> {
  const abort = abortWhenClosed(socket, () => false);
  socket.on('error', ignoreError).setTimeout(0);
  socket.setNoDelay(true);
  if (first.length > 0) socket.unshift(first);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${tunnelProtocol}\r\n\r\n`,
  );
  try {
    const { head } = await readHead(socket, channelTunnelSchema);
    const tunnel = await channels.find(head.machine).tunnel(head.port, { signal: abort.signal });
    if (socket.destroyed) {
      tunnel.on('error', ignoreError).destroy();
      return;
    }
    socket.write(jsonFrame('head', { result: null }));
    joinDuplexes(new TunnelEnd(socket), tunnel);
  } catch (thrown) {
    socket.end(jsonFrame('error', encodeError(toEdgeError(thrown))));
  }
}

async function done(work: Promise<void>): Promise<{ readonly result: null }> {
  await work;
  return { result: null };
}

/** Without members that are undefined, which the port tells from absent ones. */
function defined<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as never;
}

async function readAll(body: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxStdinBytes)
      throw new GatewayError('body_too_large', 'too much input for one call', { component: 'edge' });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** One document a line. */
function lines(values: AsyncIterable<unknown>): Readable {
  const text = async function* () {
    for await (const value of values) yield Buffer.from(`${JSON.stringify(value)}\n`);
  };
  return Readable.from(text(), { objectMode: false });
}

const ignoreError = (): void => {};
