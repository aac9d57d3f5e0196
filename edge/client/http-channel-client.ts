/** The channel of a guest on another node. */
import type { Duplex } from 'node:stream';
import { Readable } from 'node:stream';
import { z } from 'zod';
import { GatewayError, type MachineId } from '../../sdk/index.ts';
import type { OutputBody, SandboxChannel } from '../guest/index.ts';
import {
  type ChannelArgs,
  type ChannelMethod,
  type ChannelResult,
  channelCalls,
  fileRowSchema,
  watchedSchema,
} from './http-channel-wire.ts';
import { exchangeFrames, firstFrame, openTunnel } from './http-client-calls.ts';
import { readJsonLines } from './http-client-json.ts';
import type { EdgeConnection } from './http-connection.ts';
import { jsonFrame } from './http-frames.ts';
import { TunnelEnd } from './http-tunnel.ts';
import { decodeError, edgePaths, protocolError } from './http-wire.ts';

/**
 * Every call is a request of its own, so the channel needs no connection and closing it ends nothing; `closed` then settles.
 * `resume` is refused: waking a guest is its edge's affair.
 */
export function createHttpChannel(connection: EdgeConnection, machine: MachineId): SandboxChannel {
  const closing = Promise.withResolvers<void>();

  /** The result, and what follows it; the caller reads the body to its end or destroys it. */
  async function open<M extends ChannelMethod>(
    method: M,
    args: ChannelArgs<M>,
    { signal }: { readonly signal: AbortSignal },
    body: Readable | null = null,
  ): Promise<{ readonly result: ChannelResult<M>; readonly body: Readable }> {
    const { result } = channelCalls[method];
    const answer = exchangeFrames(connection, {
      path: edgePaths.channel,
      head: { machine, method, args, hasBody: body !== null },
      ...{ body, signal },
      headSchema: z.strictObject({ result }),
    });
    const head = (await answer.head) as { readonly result: ChannelResult<M> };
    return { result: head.result, body: answer.body };
  }
  async function ask<M extends ChannelMethod>(
    method: M,
    args: ChannelArgs<M>,
    options: { readonly signal: AbortSignal },
    body: Readable | null = null,
  ): Promise<ChannelResult<M>> {
    const answer = await open(method, args, options, body);
    answer.body.resume();
    return answer.result;
  }
  async function tell<M extends ChannelMethod>(...call: Parameters<typeof ask<M>>): Promise<void> {
    await ask(...call);
  }

  return {
    closed: closing.promise,
    ping: (options) => ask('ping', {}, options),
    async resume() {
      throw new GatewayError('forbidden', 'only the node itself wakes a guest', { component: 'edge' });
    },
    tunnel: (port, { signal }) => tunnelOver(connection, machine, port, signal),
    startProcess: (spec, options) =>
      ask('startProcess', { spec: { ...spec, argv: [...spec.argv] } }, options),
    listProcesses: (options) => ask('listProcesses', {}, options),
    processStatus: (id, options) => ask('processStatus', { id }, options),
    waitProcess: (id, options) => ask('waitProcess', { id }, options),
    async processOutput(id, stream, { signal, ...more }): Promise<OutputBody> {
      const { result, body } = await open('processOutput', { id, stream, ...more }, { signal });
      return Object.assign(body, { offset: result.offset });
    },
    signalProcess: (id, signalNumber, options) => tell('signalProcess', { id, signalNumber }, options),
    resizeTerminal: (id, { cols, rows }, options) => tell('resizeTerminal', { id, cols, rows }, options),
    deleteProcess: (id, options) => tell('deleteProcess', { id }, options),
    writeStdin: (id, body, { signal, ...more }) =>
      ask('writeStdin', { id, ...more }, { signal }, streamOf(body)),
    writeFile: (path, body, { signal, ...more }) =>
      tell('writeFile', { path, ...more }, { signal }, body instanceof Readable ? body : streamOf(body)),
    readFile: async (path: string, { signal, ...more }: { readonly signal: AbortSignal }) =>
      (await open('readFile', { path, ...more }, { signal })).body,
    statFile: (path, { signal, ...more }) => ask('statFile', { path, ...more }, { signal }),
    listFiles: async (path, { signal, ...more }) =>
      readJsonLines((await open('listFiles', { path, ...more }, { signal })).body, fileRowSchema),
    makeDirectory: (path, { signal, ...more }) => tell('makeDirectory', { path, ...more }, { signal }),
    moveFile: (from, to, { signal, ...more }) => tell('moveFile', { from, to, ...more }, { signal }),
    deleteFile: (path, { signal, ...more }) => tell('deleteFile', { path, ...more }, { signal }),
    watchFiles: async (path, { signal, ...more }) =>
      readJsonLines((await open('watchFiles', { path, ...more }, { signal })).body, watchedSchema),
    metrics: (options) => ask('metrics', {}, options),
    sync: (options) => tell('sync', {}, options),
    close: () => closing.resolve(),
    async [Symbol.asyncDispose]() {
      closing.resolve();
    },
  };
}

const streamOf = (bytes: Uint8Array): Readable =>
  Readable.from(bytes.length === 0 ? [] : [Buffer.from(bytes)], { objectMode: false });

async function tunnelOver(
  connection: EdgeConnection,
  machine: MachineId,
  port: number,
  signal: AbortSignal,
): Promise<Duplex> {
  const socket = await openTunnel(connection, edgePaths.channelTunnel, signal);
  socket.on('error', () => {}).setNoDelay(true);
  const onAbort = () => socket.destroy();
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    socket.write(jsonFrame('head', { machine, port }));
    const { type, value } = await firstFrame(socket);
    if (type === 'error') throw decodeError(value);
    return new TunnelEnd(socket);
  } catch (thrown) {
    socket.destroy();
    if (signal.aborted) throw signal.reason;
    throw thrown instanceof GatewayError ? thrown : protocolError(thrown);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
