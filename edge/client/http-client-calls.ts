/** The gateway's end of an invocation or an upgrade over HTTP. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import type { EdgeConnection } from './http-connection.ts';
import { FrameReader, type FrameType, jsonFrame } from './http-frames.ts';
import { TunnelEnd } from './http-tunnel.ts';
import {
  decodeError,
  edgePaths,
  type requestHeadSchema,
  responseHeadSchema,
  trailersSchema,
  tunnelProtocol,
} from './http-wire.ts';
import type { InvokeRequest, InvokeResponse, UpgradeResponse } from './port.ts';

/** @throws GatewayError what the edge said; `edge_unreachable`, `edge_lost`; the reason of the request's signal */
export function invokeOver(connection: EdgeConnection, request: InvokeRequest): Promise<InvokeResponse> {
  const exchange = connection.open('POST', edgePaths.invoke, { 'content-type': 'application/octet-stream' });
  const { outgoing } = exchange;
  const { body } = request;
  const answer = new FramedAnswer(request.signal, () => outgoing.destroy());
  answer.onEnough = () => {
    body?.unpipe(outgoing).destroy();
    outgoing.end();
  };
  outgoing.on('response', (incoming: IncomingMessage) => answer.readFrom(incoming, () => exchange.failure()));
  outgoing.on('error', (cause) => answer.fail(exchange.failure(cause)));
  outgoing.on('close', () => answer.fail(exchange.failure()));
  outgoing.write(jsonFrame('head', headOf(request)));
  if (body === null) outgoing.end();
  else {
    // A body that breaks off must not look like one that ended.
    body.on('close', () => {
      if (!body.readableEnded && !outgoing.writableEnded) outgoing.destroy();
    });
    body.pipe(outgoing);
  }
  return answer.head.then(({ isUpgraded: _isUpgraded, ...head }) => ({
    ...head,
    body: answer.body,
    trailers: () => answer.trailers,
  }));
}

/** The same for a request with `Upgrade`; the answer's socket is the connection to the edge itself. */
export async function upgradeOver(
  connection: EdgeConnection,
  request: InvokeRequest,
): Promise<UpgradeResponse> {
  const { signal } = request;
  const socket = await openTunnel(connection, signal);
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
    const answer = new FramedAnswer(signal, onAbort);
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
function openTunnel(connection: EdgeConnection, signal: AbortSignal): Promise<Socket> {
  const exchange = connection.open('GET', edgePaths.upgrade, {
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
function firstFrame(socket: Socket): Promise<{ readonly type: FrameType; readonly value: unknown }> {
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

type ResponseHead = z.output<typeof responseHeadSchema>;

/** Reads the frames of one answer; `head` settles first, then `body` flows. */
class FramedAnswer {
  readonly head: Promise<ResponseHead>;
  readonly body: Readable;
  trailers: readonly string[] = [];
  /** The edge reads no more of the request's body. */
  onEnough = (): void => {};
  readonly #resolve: (head: ResponseHead) => void;
  readonly #reject: (error: GatewayError) => void;
  readonly #signal: AbortSignal;
  readonly #onAbort = (): void => this.fail(this.#signal.reason);
  #source: Readable | undefined;
  #isComplete = false;

  /** @param stop ends the whole exchange: nobody wants its answer any more */
  constructor(signal: AbortSignal, stop: () => void) {
    const { promise, resolve, reject } = Promise.withResolvers<ResponseHead>();
    this.head = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
    this.body = new Readable({
      read: () => void this.#source?.resume(),
      destroy: (error, callback) => {
        signal.removeEventListener('abort', this.#onAbort);
        if (!this.#isComplete) stop();
        callback(error);
      },
    });
    // Errors also reject `head`, and nobody listens to a body that was never handed out.
    this.body.on('error', ignoreError);
    signal.addEventListener('abort', this.#onAbort, { once: true });
    if (signal.aborted) queueMicrotask(this.#onAbort);
  }

  /** @param lost what it means when the frames stop before the last one */
  readFrom(source: Readable, lost: () => GatewayError): void {
    this.#source = source;
    const reader = new FrameReader({
      onJson: (type, value) => this.#onJson(type, value),
      onData: (piece) => {
        if (!this.body.push(piece)) source.pause();
      },
    });
    const onData = (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (thrown) {
        this.fail(thrown instanceof GatewayError ? thrown : protocolError(thrown));
      }
    };
    source
      .on('data', onData)
      .on('error', ignoreError)
      .on('close', () => this.fail(lost()));
  }

  /** Before the head: the call fails with it. After: the body does. Nothing once the answer is complete. */
  fail(error: GatewayError): void {
    if (this.#isComplete) return;
    this.#reject(error);
    this.body.destroy(error);
  }

  #onJson(type: Exclude<FrameType, 'data'>, value: unknown): 'frames' | 'raw' {
    switch (type) {
      case 'enough':
        this.onEnough();
        return 'frames';
      case 'error':
        this.fail(decodeError(value));
        return 'frames';
      case 'trailers':
        this.trailers = trailersSchema.parse(value);
        this.#isComplete = true;
        this.body.push(null);
        return 'frames';
      case 'head':
        this.#resolve(responseHeadSchema.parse(value));
        return 'frames';
      case 'end':
        throw protocolError();
    }
  }
}

function headOf(request: InvokeRequest): z.input<typeof requestHeadSchema> {
  const { signal: _signal, body, rawHeaders, ...head } = request;
  return { ...head, rawHeaders: [...rawHeaders], hasBody: body !== null };
}

const protocolError = (cause?: unknown) =>
  new GatewayError('internal', 'the peer does not speak the edge protocol', { component: 'edge', cause });

const lost = () =>
  new GatewayError('edge_lost', 'the node went away before it had answered', { component: 'edge' });

const ignoreError = (): void => {};
