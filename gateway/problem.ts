/** Gateway-made errors on the wire: problem documents that can't be taken for the function's own answers. */
import { STATUS_CODES } from 'node:http';
import { type GatewayError, headerNames, toProblem } from '../sdk/index.ts';

/** What a problem answer needs to know of its request. */
export interface ProblemContext {
  readonly requestId: string;
  readonly template?: string | undefined;
  readonly version?: string | undefined;
  /** The request carried `Origin`: without CORS headers a browser would hide the error from its page. */
  readonly isCrossOrigin?: boolean | undefined;
  /** Methods for `Allow`; sent with 405. */
  readonly allow?: string | undefined;
}

/** Status, headers and body of an error, for a `ServerResponse` or for {@link formatHead}. */
export interface ProblemAnswer {
  readonly status: number;
  readonly rawHeaders: string[];
  readonly body: string;
}

/** The connection must not be used again: a client would keep meeting the answer which tells "down" (ilbertt/nibrun#300). */
export const tellsDown = (status: number): boolean => status >= 500;

/** Builds the whole answer. `Connection` is left to the caller, who knows the state of the request body. */
export function problemAnswer(error: GatewayError, context: ProblemContext): ProblemAnswer {
  const document = {
    ...toProblem(error),
    ...(context.template === undefined ? {} : { template: context.template }),
    ...(context.version === undefined ? {} : { version: context.version }),
    request_id: context.requestId,
  };
  const body = `${JSON.stringify(document)}\n`;
  const rawHeaders = [
    'content-type',
    'application/problem+json',
    'content-length',
    String(Buffer.byteLength(body)),
    'cache-control',
    'no-store',
    headerNames.error,
    `${error.details.component ?? 'gateway'}/${error.code}`,
    headerNames.requestId,
    context.requestId,
  ];
  if (error.status === 429 || error.status === 503) {
    const seconds = Math.max(1, Math.ceil(error.details.retryAfterSeconds ?? 1));
    rawHeaders.push('retry-after', String(seconds));
  }
  if (error.status === 401) rawHeaders.push('www-authenticate', 'Bearer realm="snapgate"');
  if (context.allow !== undefined) rawHeaders.push('allow', context.allow);
  if (context.isCrossOrigin) {
    const exposed = `${headerNames.error}, ${headerNames.requestId}, retry-after`;
    rawHeaders.push('access-control-allow-origin', '*', 'access-control-expose-headers', exposed);
  }
  return { status: error.status, rawHeaders, body };
}

/**
 * Status line and headers as text, for sockets that have no `ServerResponse`: refused upgrades and requests the parser
 * gave up on. Names and values must be clean already.
 */
export function formatHead(status: number, rawHeaders: readonly string[]): string {
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Status'}\r\n`;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2)
    text += `${rawHeaders[at]}: ${rawHeaders[at + 1]}\r\n`;
  return `${text}\r\n`;
}
