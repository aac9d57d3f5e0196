/** Copies a function's answer to a client: bytes untouched, each chunk at once, no faster than the client reads. */
import type { ServerResponse } from 'node:http';
import type { InvokeResponse } from '../../edge/client/index.ts';
import { GatewayError, headerNames } from '../../sdk/index.ts';
import { clientHeaders, clientTrailers } from './response-headers.ts';

export interface RelayContext {
  readonly requestId: string;
  readonly version: string;
  /** The answer was given before, to the same request. */
  readonly isReplay: boolean;
  readonly method: string;
  /** Says `Connection: close`. */
  readonly mustClose: boolean;
  readonly onHead: () => void;
  readonly onBytes: (count: number) => void;
  /** All of the answer was given to the client's connection. */
  readonly onEnd: () => void;
  /** The answer broke off, before or after its head was sent. */
  readonly onError: (error: unknown) => void;
}

/** Never throws. Calls exactly one of `onEnd` and `onError`, unless the client's connection goes away first. */
export function relay(answer: InvokeResponse, response: ServerResponse, context: RelayContext): void {
  const { body, status } = answer;
  const hasBody = context.method !== 'HEAD' && status !== 204 && status !== 304;
  let contentLength: number | null;
  try {
    if (!Number.isInteger(status) || status < 200 || status > 999) throw invalidAnswer(`status ${status}`);
    const canHaveTrailers = hasBody && response.req.httpVersionMinor === 1;
    const facts = { requestId: context.requestId, version: context.version, meta: answer.meta };
    const head = clientHeaders(status, answer.rawHeaders, facts, canHaveTrailers);
    contentLength = head.contentLength;
    if (context.isReplay) head.rawHeaders.push(headerNames.replayed, 'true');
    if (context.mustClose) head.rawHeaders.push('connection', 'close');
    response.writeHead(status, head.rawHeaders);
  } catch (cause) {
    body.destroy();
    context.onError(cause instanceof GatewayError ? cause : invalidAnswer('a header', cause));
    return;
  }
  context.onHead();

  let sentBytes = 0;
  let isOver = false;
  const stop = (error: unknown) => {
    if (isOver) return;
    isOver = true;
    body.destroy();
    context.onError(error);
  };
  const onDrain = () => body.resume();
  const onData = (chunk: Buffer) => {
    if (!hasBody) return;
    sentBytes += chunk.length;
    if (contentLength !== null && sentBytes > contentLength) return stop(wrongLength(contentLength));
    context.onBytes(chunk.length);
    if (!response.write(chunk)) body.pause();
  };
  const onEnd = () => {
    if (isOver) return;
    if (hasBody && contentLength !== null && sentBytes !== contentLength)
      return stop(wrongLength(contentLength));
    isOver = true;
    response.off('drain', onDrain);
    if (hasBody && contentLength === null && response.chunkedEncoding) {
      const trailers = clientTrailers(answer.trailers());
      if (trailers.length > 0) response.addTrailers(trailers);
    }
    response.end();
    context.onEnd();
  };
  response.on('drain', onDrain);
  body
    .on('data', onData)
    .on('end', onEnd)
    .on('error', stop)
    .on('close', () => {
      // Errors are dear: every answer closes, and nearly all of them are over by then.
      if (!isOver)
        stop(new GatewayError('guest_unreachable', 'the function ended in the middle of its answer'));
    });
  // A head whose body takes its time must not wait for it; one whose body follows at once goes out in one piece with it.
  setImmediate(() => isOver || sentBytes > 0 || response.destroyed || response.flushHeaders());
}

const invalidAnswer = (what: string, cause?: unknown) =>
  new GatewayError('function_crashed', `the function answered with ${what} that HTTP does not allow`, {
    cause,
  });

const wrongLength = (promised: number) =>
  new GatewayError(
    'function_crashed',
    `the function promised ${promised} bytes and sent another number of them`,
  );
