/** Sends an invocation to a plain HTTP server as an edge would send it to a guest. For tests. */
import { type Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import type { InvokeMeta, InvokeRequest, InvokeResponse, UpgradeResponse } from '../../edge/client/index.ts';
import { GatewayError } from '../../sdk/index.ts';

export interface ForwardTarget {
  readonly port: number;
  readonly agent: Agent;
  readonly meta: (request: InvokeRequest, execMs: number) => InvokeMeta;
}

/** @throws GatewayError `function_timeout`, `function_crashed`, `function_port_closed`, `cancelled` */
export async function forward(target: ForwardTarget, request: InvokeRequest): Promise<InvokeResponse> {
  const startedAt = performance.now();
  const outgoing = open(target, request);
  sendBody(outgoing, request);
  const incoming = await answered(outgoing, request, 'response', (message: IncomingMessage) => message);
  return responseOf(target, request, incoming, performance.now() - startedAt);
}

/** The same for a request with `Upgrade`. */
export async function forwardUpgrade(
  target: ForwardTarget,
  request: InvokeRequest,
): Promise<UpgradeResponse> {
  const startedAt = performance.now();
  const outgoing = open(target, request);
  outgoing.end();
  const upgraded = answered(outgoing, request, 'upgrade', (message, socket, head): UpgradeResponse => {
    if (head.length > 0) socket.unshift(head);
    const meta = target.meta(request, performance.now() - startedAt);
    return { isUpgraded: true, status: 101, rawHeaders: message.rawHeaders, socket, meta };
  });
  const refused = answered(outgoing, request, 'response', (message): UpgradeResponse => {
    const response = responseOf(target, request, message, performance.now() - startedAt);
    return { isUpgraded: false, ...response };
  });
  return Promise.race([upgraded, refused]);
}

function open({ port, agent }: ForwardTarget, request: InvokeRequest): ClientRequest {
  const headers = [...request.rawHeaders];
  const hasLength = headers.some((name, at) => at % 2 === 0 && name.toLowerCase() === 'content-length');
  if (request.body !== null && !hasLength) headers.push('transfer-encoding', 'chunked');
  return httpRequest({
    port,
    agent,
    host: '127.0.0.1',
    method: request.method,
    path: request.target,
    headers,
  });
}

function sendBody(outgoing: ClientRequest, { body }: InvokeRequest): void {
  if (body === null) {
    outgoing.end();
    return;
  }
  body.on('error', () => outgoing.destroy());
  outgoing.on('close', () => body.destroy());
  body.pipe(outgoing);
}

function answered<T>(
  outgoing: ClientRequest,
  request: InvokeRequest,
  event: 'response' | 'upgrade',
  // biome-ignore lint/suspicious/noExplicitAny: the arguments of a Node event
  read: (...values: any[]) => T,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const fail = (error: GatewayError) => {
      clearTimeout(timer);
      reject(error);
      outgoing.destroy();
    };
    const timer = setTimeout(() => {
      fail(
        new GatewayError('function_timeout', `no answer within ${request.timeoutMs} ms`, {
          component: 'edge',
        }),
      );
    }, request.timeoutMs).unref();
    const onAbort = () => fail(new GatewayError('cancelled', 'the caller went away', { component: 'edge' }));
    request.signal.addEventListener('abort', onAbort, { once: true });
    outgoing.on(event, (...values) => {
      clearTimeout(timer);
      resolve(read(...values));
    });
    outgoing.on('error', (cause: NodeJS.ErrnoException) => {
      const code = cause.code === 'ECONNREFUSED' ? 'function_port_closed' : 'function_crashed';
      fail(new GatewayError(code, 'the function ended before it answered', { component: 'guest', cause }));
    });
  });
}

function responseOf(
  target: ForwardTarget,
  request: InvokeRequest,
  body: IncomingMessage,
  execMs: number,
): InvokeResponse {
  request.signal.addEventListener('abort', () => body.destroy(), { once: true });
  return {
    status: body.statusCode ?? 0,
    rawHeaders: body.rawHeaders,
    body,
    trailers: () => body.rawTrailers,
    meta: target.meta(request, execMs),
  };
}
