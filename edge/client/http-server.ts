/** An edge behind HTTP, for gateways in other processes. Who may connect is the listener's affair: socket mode, or mTLS. */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer, type ServerOptions as TlsOptions } from 'node:https';
import type { Socket } from 'node:net';
import { GatewayError, isVersionDigest } from '../../sdk/index.ts';
import { serveInvoke, serveUpgrade } from './http-server-calls.ts';
import { TailBody } from './http-tail-body.ts';
import {
  edgePaths,
  encodeError,
  logRequestSchema,
  servingSchema,
  toEdgeError,
  tunnelProtocol,
} from './http-wire.ts';
import type { EdgeClient, LogRequest } from './port.ts';

/** Both halves of a listener: `request` for plain requests, `upgrade` for tunnels. They never throw. */
export interface EdgeHandler {
  request(request: IncomingMessage, response: ServerResponse): void;
  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void;
}

const maxJsonBytes = 64 * 1024 * 1024;

/** @param edge stays the caller's */
export function createEdgeHandler(edge: EdgeClient): EdgeHandler {
  return {
    request(request, response) {
      if (request.method === 'POST' && request.url === edgePaths.invoke) {
        void serveInvoke(edge, request, response);
        return;
      }
      answer(edge, request, response).catch((thrown) => sendError(response, thrown));
    },
    upgrade(request, socket, head) {
      if (request.url === edgePaths.upgrade && request.headers.upgrade === tunnelProtocol) {
        void serveUpgrade(edge, socket, head);
        return;
      }
      socket.on('error', () => {});
      socket.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
    },
  };
}

/**
 * A server with the limits the protocol needs: no limit on a request's duration (builds, uploads), and idle connections kept
 * longer than a client keeps them. It does not listen yet and is the caller's to close.
 * @param tls for mutual TLS give `ca`, `cert`, `key`, `requestCert` and `rejectUnauthorized`
 */
export function createEdgeServer(edge: EdgeClient, tls?: TlsOptions): Server {
  const handler = createEdgeHandler(edge);
  const options: ServerOptions = {
    requestTimeout: 0,
    headersTimeout: 10_000,
    keepAliveTimeout: 60_000,
    noDelay: true,
  };
  const server = tls === undefined ? createServer(options) : createTlsServer({ ...options, ...tls });
  return server
    .on('request', handler.request)
    .on('upgrade', (request, socket, head) => handler.upgrade(request, socket as Socket, head));
}

async function answer(edge: EdgeClient, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const route = `${request.method} ${request.url}`;
  switch (route) {
    case `GET ${edgePaths.node}`:
      return sendJson(response, await edge.node());
    case `GET ${edgePaths.machines}`:
      return sendJson(response, await edge.machines());
    case `GET ${edgePaths.pools}`:
      return sendJson(response, await edge.pools());
    case `GET ${edgePaths.metrics}`:
      return sendJson(response, await edge.metrics());
    case `PUT ${edgePaths.serving}`:
      return sendJson(response, await edge.setServing(servingSchema.parse(await readJson(request)).versions));
    case `POST ${edgePaths.build}`:
      // A build that refuses its archive destroys it, which must not close the connection that tells why.
      return sendLines(response, (signal) => edge.build(new TailBody(request), { signal }));
    case `POST ${edgePaths.logs}`: {
      const { machine, ...query } = logRequestSchema.parse(await readJson(request));
      const base: Omit<LogRequest, 'signal'> = machine === undefined ? query : { ...query, machine };
      return sendLines(response, (signal) => edge.logs({ ...base, signal }));
    }
    default: {
      const digest = request.url?.slice(edgePaths.versions.length + 1) ?? '';
      if (
        request.method === 'DELETE' &&
        request.url?.startsWith(`${edgePaths.versions}/`) &&
        isVersionDigest(digest)
      ) {
        await edge.removeVersion(digest);
        return sendJson(response, null);
      }
      throw new GatewayError('route_not_found', 'the edge has no such route', { component: 'edge' });
    }
  }
}

function sendJson(response: ServerResponse, value: unknown): void {
  const body = JSON.stringify(value);
  response
    .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
    .end(body);
}

function sendError(response: ServerResponse, thrown: unknown): void {
  const error = toEdgeError(thrown);
  const body = JSON.stringify(encodeError(error));
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  // What is left of a request's body is not worth reading.
  if (!response.req.complete) response.shouldKeepAlive = false;
  response.writeHead(error.status, headers).end(body);
}

/** One document a line as fast as the gateway reads; the last line says how it ended. */
async function sendLines<T>(
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

async function readJson(request: IncomingMessage): Promise<unknown> {
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
