/** Sends gateway-made errors so that the client can really read them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock, GatewayError } from '../sdk/index.ts';
import { drainRequest } from './functions/drain.ts';
import { type ProblemContext, problemAnswer, tellsDown } from './problem.ts';

/** Bounds of what is read and dropped after an early answer. */
export interface LingerOptions {
  readonly lingerBytes: number;
  readonly lingerMs: number;
}

export interface RespondOptions extends LingerOptions {
  readonly clock: Clock;
  /** The connection shall carry no other request. */
  readonly mustClose?: boolean;
  /** The client sent `Expect: 100-continue` and got no answer to it. */
  readonly owesContinue?: boolean;
}

/** Unread rests up to here are read rather than closed over, so that the connection stays usable. */
const smallRestBytes = 64 * 1024;

/** Whether a request announced a body. */
export const announcesBody = (request: IncomingMessage): boolean =>
  request.headers['transfer-encoding'] !== undefined || (announcedLength(request) ?? 0) > 0;

/** `Content-Length`, which the parser has validated; undefined when there is none. */
export function announcedLength(request: IncomingMessage): number | undefined {
  const length = request.headers['content-length'];
  return length === undefined ? undefined : Number(length);
}

/**
 * Answers with the problem document of an error. Where the client may still be sending, the answer is complete before the
 * connection closes, and what arrives until then is dropped (see `drain.ts`).
 */
export function sendProblem(
  request: IncomingMessage,
  response: ServerResponse,
  error: GatewayError,
  context: ProblemContext,
  options: RespondOptions,
): void {
  const answer = problemAnswer(error, { ...context, isCrossOrigin: request.headers.origin !== undefined });
  // A client that still waits for `100 Continue` has nothing under way.
  const isPending = announcesBody(request) && !request.complete && options.owesContinue !== true;
  const isSmall = (announcedLength(request) ?? Number.POSITIVE_INFINITY) <= smallRestBytes;
  const closes =
    options.mustClose === true ||
    options.owesContinue === true ||
    tellsDown(answer.status) ||
    (isPending && !isSmall);
  if (closes) answer.rawHeaders.push('connection', 'close');
  response.writeHead(answer.status, answer.rawHeaders);
  if (!isPending) {
    response.end(answer.body);
    return;
  }
  const drain = drainRequest(request, options);
  drain.finishWithin();
  if (!closes) {
    response.end(answer.body);
    void drain.done.then(() => request.complete || request.socket.destroy());
    return;
  }
  // Node closes the connection as soon as such an answer ends; Content-Length has told the client that it is complete.
  response.write(answer.body);
  response.flushHeaders();
  void drain.done.then(() => response.end());
}
