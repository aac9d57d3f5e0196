/** What envd's plain HTTP routes share: requests of either HTTP version, JSON answers, bounded bodies. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { GatewayError } from '../../../sdk/index.ts';

/** HTTP/2 requests come as these too: node's compatibility classes do all that is used here. */
export type HttpRequest = IncomingMessage;
export type HttpResponse = ServerResponse;

/** A header that may come once. */
export function headerOf(request: HttpRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

/** Answers with JSON, whatever became of the request's body: the rest of it is not waited for. */
export function sendJson(
  response: HttpResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const text = JSON.stringify(body);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    'cache-control': 'no-store',
    ...headers,
  });
  response.end(text);
}

/** envd's form of an error. */
export const sendError = (response: HttpResponse, status: number, message: string): void =>
  sendJson(response, status, { code: status, message });

/** A signal that aborts when the client has gone before its answer was complete. */
export function clientSignal(response: HttpResponse): AbortSignal {
  const gone = new AbortController();
  response.once('close', () => {
    if (!response.writableFinished) gone.abort(new GatewayError('cancelled', 'the client went away'));
  });
  return gone.signal;
}

/** A JSON body. @throws GatewayError `body_too_large`, `invalid_request` */
export async function readJson(request: HttpRequest, limitBytes: number): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limitBytes) throw new GatewayError('body_too_large', `the body is over ${limitBytes} bytes`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (cause) {
    throw new GatewayError('invalid_request', 'the body is no JSON', { cause });
  }
}
