/** Documents and lines between an edge and its gateways: the edge's end. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { GatewayError } from '../../sdk/index.ts';
import { encodeError, toEdgeError } from './http-wire.ts';

const maxJsonBytes = 64 * 1024 * 1024;

/** Answers with a document. */
export function sendJson(response: ServerResponse, value: unknown): void {
  const body = JSON.stringify(value);
  response
    .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
    .end(body);
}

/** Answers with an error as it crosses; the connection stays usable unless a body is under way. */
export function sendError(response: ServerResponse, thrown: unknown): void {
  const error = toEdgeError(thrown);
  const body = JSON.stringify(encodeError(error));
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  // What is left of a request's body is not worth reading.
  if (!response.req.complete) response.shouldKeepAlive = false;
  response.writeHead(error.status, headers).end(body);
}

/** One document a line as fast as the gateway reads; the last line says how it ended. */
export async function sendLines<T>(
  response: ServerResponse,
  source: (signal: AbortSignal) => AsyncIterable<T>,
): Promise<void> {
  const abort = new AbortController();
  response.once('close', () => {
    if (!response.writableFinished) abort.abort(new GatewayError('cancelled', 'the gateway went away'));
  });
  response.writeHead(200, { 'content-type': 'application/x-ndjson' }).flushHeaders();
  let last: unknown = { end: true };
  try {
    for await (const value of source(abort.signal)) {
      if (!response.write(`${JSON.stringify({ value })}\n`)) await drained(response, abort.signal);
    }
  } catch (thrown) {
    last = { error: encodeError(toEdgeError(thrown)) };
  }
  response.end(`${JSON.stringify(last)}\n`);
}

function drained(response: ServerResponse, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  response.once('drain', resolve);
  signal.addEventListener('abort', () => resolve(), { once: true });
  return promise.finally(() => response.off('drain', resolve));
}

/** The document of a request. @throws GatewayError `body_too_large`, `invalid_request` */
export async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let receivedBytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    receivedBytes += chunk.length;
    if (receivedBytes > maxJsonBytes) {
      throw new GatewayError('body_too_large', 'the document is too large', { component: 'edge' });
    }
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (cause) {
    throw new GatewayError('invalid_request', 'the document is not JSON', { component: 'edge', cause });
  }
}
