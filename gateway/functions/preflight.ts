/**
 * CORS preflights of templates that need a key. A browser never sends credentials with a preflight, so asking for a key would
 * make every such template useless to pages (open-constructs/cdk-serverless#372). The preflight is therefore answered here,
 * permissively: it only allows the browser to send the real request, which still needs its key; and whether a page may read
 * the answer is still the function's own decision. Public templates answer their preflights themselves.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { headerNames } from '../../sdk/index.ts';
import { requestIdOf } from '../request-id.ts';

/** Browsers cap it at 2 hours or less anyway. */
const maxAgeSeconds = 600;

/** Whether this is a preflight without a key. A plain `OPTIONS` is a request like any other. */
export const isBarePreflight = (request: IncomingMessage): boolean =>
  request.method === 'OPTIONS' &&
  request.headers.origin !== undefined &&
  request.headers['access-control-request-method'] !== undefined &&
  request.headers.authorization === undefined &&
  request.headers['x-api-key'] === undefined;

/** Answers 204. What is echoed went through the HTTP parser, so it can't split the answer. */
export function answerPreflight(request: IncomingMessage, response: ServerResponse): void {
  const requestedHeaders = request.headers['access-control-request-headers'];
  response.writeHead(204, [
    'access-control-allow-origin',
    '*',
    'access-control-allow-methods',
    String(request.headers['access-control-request-method']),
    ...(requestedHeaders === undefined ? [] : ['access-control-allow-headers', String(requestedHeaders)]),
    'access-control-max-age',
    String(maxAgeSeconds),
    'vary',
    'access-control-request-method, access-control-request-headers',
    headerNames.requestId,
    requestIdOf(request.headers['x-request-id']),
  ]);
  response.end();
}
