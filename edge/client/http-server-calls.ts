/** The edge's end of an invocation or an upgrade that came over HTTP. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex, Readable, Writable } from 'node:stream';
import type { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import { FrameReader, frameHeader, jsonFrame } from './http-frames.ts';
import { TailBody } from './http-tail-body.ts';
import { TunnelEnd } from './http-tunnel.ts';
import { encodeError, requestHeadSchema, toEdgeError, tunnelProtocol } from './http-wire.ts';
import type { EdgeClient, InvokeRequest, InvokeResponse } from './port.ts';

type RequestHead = z.output<typeof requestHeadSchema>;

/** Has a call answered in frames, errors included. `signal` fires when the gateway left. Never rejects. */
export async function serveInFrames(
  incoming: IncomingMessage,
  response: ServerResponse,
  answer: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const abort = abortWhenClosed(response, () => response.writableFinished);
  incoming.on('error', ignoreError);
  response.on('error', ignoreError);
  response.writeHead(200, { 'content-type': 'application/octet-stream' });
  try {
    await answer(abort.signal);
  } catch (thrown) {
    response.end(jsonFrame('error', encodeError(toEdgeError(thrown))));
  }
}

/** The body of a call behind its head, of which `rest` was read already. */
export function bodyBehind(incoming: IncomingMessage, rest: Buffer, response: ServerResponse): TailBody {
  const body = new TailBody(incoming, rest);
  body.on('error', ignoreError).on('close', () => {
    // The gateway shall not send what nobody reads, and its client not wait because nobody reads it.
    if (!body.readableEnded && !response.writableEnded) response.write(jsonFrame('enough', true));
    incoming.resume();
  });
  response.on('close', () => body.destroy());
  return body;
}

/** Answers in frames, errors included. Never rejects. */
export function serveInvoke(
  edge: EdgeClient,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  return serveInFrames(incoming, response, async (signal) => {
    const { head, rest } = await readHead(incoming, requestHeadSchema);
    const body = head.hasBody ? bodyBehind(incoming, rest, response) : null;
    sendAnswer(await edge.invoke(requestOf(head, body, signal)), response, signal);
  });
}

/** Takes over a socket that asked for {@link tunnelProtocol}. Never rejects. */
export async function serveUpgrade(edge: EdgeClient, socket: Socket, first: Buffer): Promise<void> {
  const abort = abortWhenClosed(socket, () => false);
  socket.on('error', ignoreError).setTimeout(0);
  socket.setNoDelay(true);
  if (first.length > 0) socket.unshift(first);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${tunnelProtocol}\r\n\r\n`,
  );
  try {
    const { head } = await readHead(socket, requestHeadSchema);
    // Nothing may come before the answer, but a socket that is not read never tells that its peer left.
    const onEarly = () => socket.destroy();
    socket.on('data', onEarly).on('end', onEarly).resume();
    const answer = await edge.upgrade(requestOf(head, null, abort.signal));
    if (!answer.isUpgraded) {
      sendAnswer(answer, socket, abort.signal);
      return;
    }
    socket.off('data', onEarly).off('end', onEarly).pause();
    if (socket.destroyed) {
      answer.socket.on('error', ignoreError).destroy();
      return;
    }
    const { isUpgraded, status, rawHeaders, meta } = answer;
    socket.write(jsonFrame('head', { isUpgraded, status, rawHeaders, meta }));
    joinDuplexes(new TunnelEnd(socket), answer.socket);
  } catch (thrown) {
    socket.end(jsonFrame('error', encodeError(toEdgeError(thrown))));
  }
}

function requestOf(head: RequestHead, body: Readable | null, signal: AbortSignal): InvokeRequest {
  const { hasBody: _hasBody, session, ...request } = head;
  return { ...request, body, signal, ...(session === undefined ? {} : { session }) };
}

function sendAnswer(answer: InvokeResponse, out: Writable, signal: AbortSignal): void {
  const { status, rawHeaders, meta, body } = answer;
  if (signal.aborted || out.destroyed) {
    body.on('error', ignoreError).destroy();
    return;
  }
  out.write(jsonFrame('head', { isUpgraded: false, status, rawHeaders, meta }));
  sendBody(body, () => answer.trailers(), out, signal);
}

/** Sends what is behind the head of an answer, and how it ended. */
export function sendBody(
  body: Readable,
  trailers: () => readonly string[],
  out: Writable,
  signal: AbortSignal,
): void {
  signal.addEventListener('abort', () => body.destroy(), { once: true });
  let isOver = false;
  const finish = (frame: Buffer) => {
    if (isOver) return;
    isOver = true;
    out.end(frame);
  };
  out.on('drain', () => body.resume());
  body
    .on('data', (chunk: Buffer) => {
      if (chunk.length === 0) return;
      out.write(frameHeader('data', chunk.length));
      if (!out.write(chunk)) body.pause();
    })
    .on('end', () => finish(jsonFrame('trailers', trailers())))
    .on('error', (error) => finish(jsonFrame('error', encodeError(toEdgeError(error)))))
    .on('close', () => {
      if (!isOver) finish(jsonFrame('error', encodeError(brokenAnswer())));
    });
}

const brokenAnswer = () =>
  new GatewayError('guest_unreachable', 'the function ended in the middle of its answer', {
    component: 'guest',
  });

/** Reads the head frame and leaves everything behind it unread. */
export function readHead<Head>(
  source: Readable,
  schema: z.ZodType<Head>,
): Promise<{ head: Head; rest: Buffer }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ head: Head; rest: Buffer }>();
  let head: Head | undefined;
  const reader = new FrameReader({
    onJson(type, value) {
      if (type === 'head') head = schema.parse(value);
      return 'raw';
    },
    onData() {},
  });
  const stop = () => source.pause().off('data', onData).off('end', onEnd).off('close', onEnd);
  const fail = (cause: unknown) => {
    stop();
    reject(
      new GatewayError('invalid_request', 'the head of the call is not one', { component: 'edge', cause }),
    );
  };
  const onEnd = () => fail(undefined);
  const onData = (chunk: Buffer) => {
    try {
      const rest = reader.push(chunk);
      if (head === undefined) return;
      stop();
      resolve({ head, rest });
    } catch (error) {
      fail(error);
    }
  };
  source.on('data', onData).on('end', onEnd).on('close', onEnd);
  return promise;
}

/** Aborts when the gateway gives up. */
export function abortWhenClosed(stream: Writable, isDone: () => boolean): AbortController {
  const abort = new AbortController();
  stream.once('close', () => {
    if (!isDone()) abort.abort(new GatewayError('cancelled', 'the gateway went away', { component: 'edge' }));
  });
  return abort;
}

/** Half-closes cross, and the death of one side is the death of the other. */
export function joinDuplexes(first: Duplex, second: Duplex): void {
  for (const [from, to] of [
    [first, second],
    [second, first],
  ] as const) {
    from.on('error', ignoreError).on('close', () => {
      if (from.readableEnded && !to.writableFinished) to.end(() => to.destroy());
      else to.destroy();
    });
    from.pipe(to);
  }
}

const ignoreError = (): void => {};
