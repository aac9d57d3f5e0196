/** The gateway's end of an invocation or an upgrade over HTTP. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import { FramedAnswer } from './http-answer.ts';
import type { EdgeConnection } from './http-connection.ts';
import { FrameReader, type FrameType, jsonFrame } from './http-frames.ts';
import { TunnelEnd } from './http-tunnel.ts';
import {
  decodeError,
  edgePaths,
  protocolError,
  type requestHeadSchema,
  responseHeadSchema,
  tunnelProtocol,
} from './http-wire.ts';
import type { InvokeRequest, InvokeResponse, UpgradeResponse } from './port.ts';

/** @throws GatewayError what the edge said; `edge_unreachable`, `edge_lost`; the reason of the request's signal */
export function invokeOver(connection: EdgeConnection, request: InvokeRequest): Promise<InvokeResponse> {
  const { body, signal } = request;
  const answer = exchangeFrames(connection, {
    path: edgePaths.invoke,
    ...{ head: headOf(request), body, signal, headSchema: responseHeadSchema },
  });
  return answer.head.then(({ isUpgraded: _isUpgraded, ...head }) => ({
    ...head,
    body: answer.body,
    trailers: () => answer.trailers,
  }));
}

/** A request whose head and body go in frames, as its answer does. */
export interface FramedCall<Head> {
  readonly path: string;
  readonly head: unknown;
  readonly body: Readable | null;
  readonly headSchema: z.ZodType<Head>;
  readonly signal: AbortSignal;
}

/** Sends it; the answer comes as it comes. */
export function exchangeFrames<Head>(connection: EdgeConnection, call: FramedCall<Head>): FramedAnswer<Head> {
  const exchange = connection.open('POST', call.path, { 'content-type': 'application/octet-stream' });
  const { outgoing } = exchange;
  const { body } = call;
  const answer = new FramedAnswer(call.headSchema, call.signal, () => outgoing.destroy());
  answer.onEnough = () => {
    body?.unpipe(outgoing).destroy();
    outgoing.end();
  };
  outgoing.on('response', (incoming: IncomingMessage) => answer.readFrom(incoming, () => exchange.failure()));
  outgoing.on('error', (cause) => answer.fail(exchange.failure(cause)));
  outgoing.on('close', () => answer.fail(exchange.failure()));
  outgoing.write(jsonFrame('head', call.head));
  if (body === null) outgoing.end();
  else {
    body.on('error', (error) => answer.fail(toBodyError(error)));
    // A body that breaks off must not look like one that ended.
    body.on('close', () => {
      if (!body.readableEnded && !outgoing.writableEnded) outgoing.destroy();
    });
    body.pipe(outgoing);
  }
  return answer;
}

/** The same for a request with `Upgrade`; the answer's socket is the connection to the edge itself. */
export async function upgradeOver(
  connection: EdgeConnection,
  request: InvokeRequest,
): Promise<UpgradeResponse> {
  const { signal } = request;
  const socket = await openTunnel(connection, edgePaths.upgrade, signal);
  socket.on('error', ignoreError).setNoDelay(true);
  const onAbort = () => socket.destroy();
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    socket.write(jsonFrame('head', headOf(request)));
    const { type, value } = await firstFrame(socket);
    if (type === 'error') throw decodeError(value);
    const { isUpgraded, ...head } = responseHeadSchema.parse(value);
    if (isUpgraded) return { ...head, isUpgraded, status: 101, socket: new TunnelEnd(socket) };
    const answer = new FramedAnswer(responseHeadSchema, signal, onAbort);
    answer.readFrom(socket, lost);
    return { isUpgraded, ...head, body: answer.body, trailers: () => answer.trailers };
  } catch (thrown) {
    socket.destroy();
    if (signal.aborted) throw signal.reason;
    throw thrown instanceof GatewayError ? thrown : protocolError(thrown);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** A connection that carries nothing but this call. */
export function openTunnel(connection: EdgeConnection, path: string, signal: AbortSignal): Promise<Socket> {
  const exchange = connection.open('GET', path, {
    connection: 'Upgrade',
    upgrade: tunnelProtocol,
  });
  const { outgoing } = exchange;
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const onAbort = () => {
    reject(signal.reason);
    outgoing.destroy();
  };
  signal.addEventListener('abort', onAbort, { once: true });
  outgoing
    .on('upgrade', (_incoming, socket: Socket, first: Buffer) => {
      if (first.length > 0) socket.unshift(first);
      resolve(socket);
    })
    .on('response', (incoming) => {
      incoming.resume();
      reject(protocolError());
    })
    .on('error', (cause) => reject(exchange.failure(cause)))
    .on('close', () => reject(exchange.failure()))
    .end();
  if (signal.aborted) onAbort();
  return promise.finally(() => signal.removeEventListener('abort', onAbort));
}

/**
 * Reads one frame and leaves what follows in the socket. It reads by `readable`, because a socket which was paused once does
 * not flow by itself for whoever gets it next.
 */
export function firstFrame(socket: Socket): Promise<{ readonly type: FrameType; readonly value: unknown }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ type: FrameType; value: unknown }>();
  let isDone = false;
  const stop = () => {
    isDone = true;
    socket.off('readable', onReadable).off('close', onClose);
  };
  const reader = new FrameReader({
    onJson(type, value) {
      stop();
      resolve({ type, value });
      return 'raw';
    },
    onData() {
      throw protocolError();
    },
  });
  const onReadable = () => {
    try {
      while (!isDone) {
        const chunk = socket.read() as Buffer | null;
        if (chunk === null) return;
        const rest = reader.push(chunk);
        if (rest.length > 0) socket.unshift(rest);
      }
    } catch (thrown) {
      stop();
      reject(thrown);
    }
  };
  const onClose = () => {
    stop();
    reject(lost());
  };
  socket.on('readable', onReadable).on('close', onClose);
  return promise;
}

function headOf(request: InvokeRequest): z.input<typeof requestHeadSchema> {
  const { signal: _signal, body, rawHeaders, ...head } = request;
  return { ...head, rawHeaders: [...rawHeaders], hasBody: body !== null };
}

const toBodyError = (error: unknown) =>
  error instanceof GatewayError
    ? error
    : new GatewayError('cancelled', 'the body broke off', { component: 'edge', cause: error });

const lost = () =>
  new GatewayError('edge_lost', 'the node went away before it had answered', { component: 'edge' });

const ignoreError = (): void => {};
