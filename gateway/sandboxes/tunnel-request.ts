/** One HTTP request over one byte tunnel into a guest. */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import type { InvokeMeta, UpgradeResponse } from '../../edge/client/index.ts';
import { GatewayError } from '../../sdk/index.ts';

export interface TunnelRequest {
  readonly method: string;
  readonly target: string;
  /** Without hop-by-hop headers, except those of an upgrade. */
  readonly rawHeaders: readonly string[];
  readonly body: Readable | null;
  readonly isUpgrade: boolean;
  readonly signal: AbortSignal;
  readonly meta: InvokeMeta;
}

const maxHeaderBytes = 64 * 1024;

/**
 * Resolves with the head of the answer. Takes the tunnel over and closes it with the answer's body, with the upgraded socket,
 * or when it fails.
 * @throws GatewayError `guest_unreachable`, `function_crashed` for an answer that is no HTTP, or the signal's reason
 */
export function requestOverTunnel(tunnel: Duplex, request: TunnelRequest): Promise<UpgradeResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<UpgradeResponse>();
  const { body, meta, signal } = request;
  const outgoing = httpRequest({
    method: request.method,
    path: request.target,
    headers: framed(request),
    createConnection: () => tunnel,
    setHost: false,
    maxHeaderSize: maxHeaderBytes,
    // The guest is as bound to HTTP as any function; leniency would let it smuggle answers.
    insecureHTTPParser: false,
  });
  const onAbort = () => fail(signal.reason);
  const fail = (error: unknown) => {
    signal.removeEventListener('abort', onAbort);
    body?.unpipe(outgoing);
    outgoing.destroy();
    tunnel.destroy();
    reject(toTunnelError(error));
  };
  const settle = (answer: UpgradeResponse) => {
    signal.removeEventListener('abort', onAbort);
    resolve(answer);
  };
  outgoing.on('error', fail);
  outgoing.on('upgrade', (response: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (head.length > 0) socket.unshift(head);
    settle({ isUpgraded: true, status: 101, rawHeaders: response.rawHeaders, socket, meta });
  });
  outgoing.on('response', (response: IncomingMessage) => {
    response.once('close', () => {
      body?.unpipe(outgoing);
      tunnel.destroy();
    });
    settle({
      isUpgraded: false,
      status: response.statusCode ?? 0,
      rawHeaders: response.rawHeaders,
      body: response,
      trailers: () => response.rawTrailers,
      meta,
    });
  });
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  else if (body === null) outgoing.end();
  else body.on('error', fail).pipe(outgoing);
  return promise;
}

/** One request a tunnel; a body whose length nobody announced goes in chunks. */
function framed({ rawHeaders, body, isUpgrade }: TunnelRequest): string[] {
  const headers = [...rawHeaders];
  const hasLength = headers.some((name, at) => at % 2 === 0 && name.toLowerCase() === 'content-length');
  if (body !== null && !hasLength) headers.push('transfer-encoding', 'chunked');
  if (!isUpgrade) headers.push('connection', 'close');
  return headers;
}

function toTunnelError(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  const code = (thrown as NodeJS.ErrnoException | null)?.code ?? '';
  return code.startsWith('HPE_')
    ? new GatewayError('function_crashed', 'what listens there does not speak HTTP', { cause: thrown })
    : new GatewayError('guest_unreachable', 'the connection into the sandbox broke off', { cause: thrown });
}
