/** Sends gateway-made errors so that the client can really read them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock, GatewayError } from '../sdk/index.ts';
import { drainRequest } from './functions/drain.ts';
import { type ProblemContext, problemAnswer, tellsDown } from './problem.ts';

export interface RespondOptions {
  readonly clock: Clock;
  readonly lingerBytes: number;
  readonly lingerMs: number;
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
 * @param mustClose the connection can't carry another request, such as after an unanswered `Expect: 100-continue`
 */
export function sendProblem(
  request: IncomingMessage,
  response: ServerResponse,
  error: GatewayError,
  context: ProblemContext,
  options: RespondOptions & { readonly mustClose?: boolean },
): void {
  const answer = problemAnswer(error, { ...context, isCrossOrigin: request.headers.origin !== undefined });
  const isPending = announcesBody(request) && !request.complete;
  const isSmall = (announcedLength(request) ?? Number.POSITIVE_INFINITY) <= smallRestBytes;
  const closes = options.mustClose === true || tellsDown(answer.status) || (isPending && !isSmall);
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
