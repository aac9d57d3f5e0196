/** The listener: which door a request goes through, and what becomes of what is no request. */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer, type ServerOptions as TlsOptions } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Clock, GatewayError } from '../sdk/index.ts';
import { closeStalledUpload } from './api/stalled-upload.ts';
import { type E2bAddress, envdPort } from './e2b/address.ts';
import type { E2bDoor } from './e2b/door.ts';
import { hasCode, toGatewayError } from './errors.ts';
import type { FunctionDoor } from './functions/door.ts';
import { createRouteParser, type FunctionRoute } from './functions/route.ts';
import type { GatewayMetrics } from './metrics.ts';
import type { GatewayOptions } from './options.ts';
import { formatHead, problemAnswer } from './problem.ts';
import { requestIdOf } from './request-id.ts';
import { readRequestLine } from './request-line.ts';
import { announcesBody, sendProblem } from './respond.ts';
import type { PortDoor } from './sandboxes/port-door.ts';
import { type PortRoute, parsePortRoute } from './sandboxes/port-route.ts';

export interface ServerDeps {
  readonly functions: FunctionDoor;
  /** Ports of sandboxes. */
  readonly ports: PortDoor;
  /** Clients of E2B; absent where the node keeps no sandboxes. */
  readonly e2b?: E2bDoor | undefined;
  /** Everything else. */
  readonly api: RequestListener;
  readonly metrics: GatewayMetrics;
  readonly clock: Clock;
}

/** Where a request goes. */
type Dispatch =
  | { readonly door: 'function'; readonly route: FunctionRoute; readonly host: string }
  | { readonly door: 'port'; readonly route: PortRoute; readonly host: string }
  | { readonly door: 'e2b'; readonly address: E2bAddress; readonly path: string; readonly host: string }
  | { readonly door: 'api'; readonly path: string };

const functionMethods = 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS';

/** A server that does not listen yet; with `tls` it speaks HTTPS. Whoever made it closes it. */
export function createGatewayServer(deps: ServerDeps, options: GatewayOptions, tls?: TlsOptions): Server {
  const { limits, timeouts } = options;
  const parseRoute = createRouteParser(options.domain);
  const respondOptions = {
    clock: deps.clock,
    lingerBytes: limits.lingerBytes,
    lingerMs: timeouts.lingerMs,
  };

  const dispatch = (request: IncomingMessage): Dispatch => {
    const { host, path } = readRequestLine(request, limits.headers);
    const route = parseRoute(host, path);
    if (route !== null) return { door: 'function', route, host };
    const address = deps.e2b?.address(request, host, path) ?? null;
    if (address !== null) return { door: 'e2b', address, path, host };
    const port = parsePortRoute(path);
    return port === null ? { door: 'api', path } : { door: 'port', route: port, host };
  };

  const onRequest = (request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void => {
    try {
      if (request.method === 'TRACE') throw methodRefused('TRACE');
      const target = dispatch(request);
      if (target.door !== 'api') {
        const facts = { host: target.host, protocol: protocolOf(request) };
        const incoming = { request, response, expectsContinue };
        if (target.door === 'e2b') {
          const { address, path } = target;
          const isData = address.kind === 'sandbox' && address.port !== envdPort;
          if (!isData && announcesBody(request))
            closeStalledUpload(request, deps.clock, timeouts.uploadIdleMs);
          deps.e2b?.handle({ ...incoming, address, path }, facts);
        } else if (target.door === 'port') deps.ports.handle({ ...incoming, route: target.route }, facts);
        else deps.functions.handle({ ...incoming, route: target.route }, facts);
        return;
      }
      request.url = target.path;
      if (announcesBody(request)) closeStalledUpload(request, deps.clock, timeouts.uploadIdleMs);
      if (expectsContinue) response.writeContinue();
      deps.api(request, response);
    } catch (thrown) {
      const requestId = requestIdOf(request.headers['x-request-id']);
      const error = toGatewayError(thrown);
      const allow = error.code === 'method_not_allowed' ? functionMethods : undefined;
      request.on('error', ignoreError);
      sendProblem(
        request,
        response,
        error,
        { requestId, allow },
        { ...respondOptions, owesContinue: expectsContinue },
      );
    }
  };

  const shouldUpgrade = (request: IncomingMessage): boolean => {
    // Clients offer HTTP/2 this way unasked (curl, Java); such an offer may be ignored, and then it is a plain request.
    if (/^\s*h2c\s*$/i.test(request.headers.upgrade ?? '')) return false;
    // Behind such a request a body and the first bytes of the new protocol could not be told apart.
    if (request.method !== 'GET' || announcesBody(request)) return false;
    try {
      const target = dispatch(request);
      if (target.door === 'e2b') return deps.e2b?.takesUpgrade(target.address) === true;
      return target.door !== 'api';
    } catch {
      return false;
    }
  };

  const onUpgrade = (request: IncomingMessage, stream: Duplex, head: Buffer): void => {
    const socket = stream as Socket;
    const target = dispatch(request);
    if (target.door === 'api') throw new GatewayError('internal', 'an upgrade went to the wrong door');
    const facts = { host: target.host, protocol: protocolOf(request) };
    if (target.door === 'e2b') {
      const { address, path } = target;
      deps.e2b?.upgrade({ request, socket, head, address, path }, facts);
    } else if (target.door === 'port')
      deps.ports.upgrade({ request, socket, head, route: target.route }, facts);
    else deps.functions.upgrade({ request, socket, head, route: target.route }, facts);
  };

  const serverOptions: ServerOptions = {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: timeouts.headersMs,
    // Bodies have an idle limit of their own (see `RequestBody`): a long upload is not a slow one.
    requestTimeout: 0,
    keepAliveTimeout: timeouts.keepAliveMs,
    connectionsCheckingInterval: Math.min(1000, timeouts.headersMs),
    // Checked by `readRequestLine`, which answers with a problem document.
    requireHostHeader: false,
    shouldUpgradeCallback: shouldUpgrade,
  };
  const server =
    tls === undefined ? createServer(serverOptions) : createTlsServer({ ...serverOptions, ...tls });
  server.maxConnections = limits.connections;
  // Node would drop those beyond a count silently; `readRequestLine` refuses the request instead.
  server.maxHeadersCount = 0;
  server
    .on('request', (request, response) => onRequest(request, response, false))
    .on('checkContinue', (request, response) => onRequest(request, response, true))
    // Any other expectation is the function's to judge.
    .on('checkExpectation', (request, response) => onRequest(request, response, false))
    .on('upgrade', onUpgrade)
    .on('connect', (_request, socket) => refuseRaw(socket, methodRefused('CONNECT'), functionMethods))
    .on('clientError', (error, socket) => {
      deps.metrics.malformedRequest(String((error as NodeJS.ErrnoException).code ?? 'unknown'));
      if (hasCode(error, 'ECONNRESET') || !socket.writable) socket.destroy();
      else refuseRaw(socket, malformed(error, limits.headerBytes));
    })
    .on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
      deps.metrics.connectionOpened();
      socket.once('close', () => deps.metrics.connectionClosed());
    });
  return server;
}

/** Requests over HTTP/2, which only clients of E2B speak here; others are sent to a connection of their own (RFC 9110 §15.5.20). */
export function createHttp2Handler(
  e2b: E2bDoor,
): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const host = String(request.headers[':authority' as 'host'] ?? request.headers.host ?? '');
    const path = request.url ?? '/';
    const address = path.startsWith('/') ? e2b.address(request, host, path) : null;
    const isData = address?.kind === 'sandbox' && address.port !== envdPort;
    if (address === null || isData) {
      response.writeHead(421, { 'content-type': 'text/plain' });
      response.end('This connection was made for another name.');
      return;
    }
    e2b.handle({ request, response, address, path, expectsContinue: false }, { host, protocol: 'https' });
  };
}

/** Answers on a socket which the parser gave up, unless an answer to an earlier request is under way on it. */
function refuseRaw(socket: Duplex, error: GatewayError, allow?: string): void {
  socket.on('error', ignoreError);
  const current = (socket as { _httpMessage?: ServerResponse | null })._httpMessage;
  if (current?.headersSent) {
    socket.destroy();
    return;
  }
  const answer = problemAnswer(error, { requestId: requestIdOf(undefined), allow });
  socket.end(formatHead(answer.status, [...answer.rawHeaders, 'connection', 'close']) + answer.body, () => {
    socket.destroy();
  });
}

function malformed(error: Error, headerBytes: number): GatewayError {
  if (hasCode(error, 'HPE_HEADER_OVERFLOW')) {
    const message = `the request line and headers are over the limit of ${headerBytes} bytes`;
    return new GatewayError('headers_too_large', message, {
      cause: error,
      extra: { limitBytes: headerBytes },
    });
  }
  if (hasCode(error, 'ERR_HTTP_REQUEST_TIMEOUT')) {
    return new GatewayError('request_timeout', 'the headers did not come in time', { cause: error });
  }
  return new GatewayError('invalid_request', 'this is not a well-formed HTTP/1.1 request', { cause: error });
}

const methodRefused = (method: string) =>
  new GatewayError('method_not_allowed', `${method} is not passed on, whatever it is for`);

const protocolOf = (request: IncomingMessage): 'http' | 'https' =>
  'encrypted' in request.socket ? 'https' : 'http';

const ignoreError = (): void => {};
