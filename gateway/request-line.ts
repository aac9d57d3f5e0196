import type { IncomingMessage } from 'node:http';
import { GatewayError } from '../sdk/index.ts';
import { splitTarget } from './functions/route.ts';

/** Letters of RFC 3986 `host` and `port`; no quote, no slash, no space. */
const hostPattern = /^[A-Za-z0-9._~:%[\]!$&'()*+,;=-]*$/;

/**
 * Host and target of a request, in a form that routing and forwarding may trust (RFC 9112 §3.2): exactly one `Host`, which
 * an absolute-form target overrides.
 * @throws GatewayError `invalid_request`, `headers_too_large`
 */
export function readRequestLine(
  request: IncomingMessage,
  maxHeaders: number,
): { readonly host: string; readonly path: string } {
  const { rawHeaders } = request;
  if (rawHeaders.length > 2 * maxHeaders) {
    const message = `the request has more than ${maxHeaders} headers`;
    throw new GatewayError('headers_too_large', message, { extra: { limit: maxHeaders } });
  }
  let host: string | undefined;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length !== 4 || name.toLowerCase() !== 'host') continue;
    if (host !== undefined) throw invalid('a request must have one Host header, not several');
    host = rawHeaders[at + 1]!;
  }
  if (host === undefined && request.httpVersionMinor > 0)
    throw invalid('a HTTP/1.1 request must have a Host header');
  const target = splitTarget(request.url ?? '');
  if (target === null) throw invalid('the request target must be a path or a whole http URL');
  const authority = target.authority ?? host ?? '';
  if (!hostPattern.test(authority)) throw invalid('the host is not one');
  return { host: authority, path: target.path };
}

const invalid = (message: string) => new GatewayError('invalid_request', message, { field: 'host' });
