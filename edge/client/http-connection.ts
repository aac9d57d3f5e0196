/** Requests from a gateway to an edge, and what it means when one gets no answer. */
import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as TlsAgent } from 'node:https';
import type { Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import { GatewayError } from '../../sdk/index.ts';

/** Where an edge listens. */
export type EdgeAddress =
  | { readonly socketPath: string }
  | {
      readonly host: string;
      readonly port: number;
      /** For mutual TLS: the CA of the edges, and this gateway's own certificate and key. */
      readonly tls?: Pick<SecureContextOptions, 'ca' | 'cert' | 'key'> & { readonly servername?: string };
    };

export interface HttpEdgeOptions {
  readonly address: EdgeAddress;
  /** From dialling to a connection, TLS included, milliseconds. Default 5 s. */
  readonly connectTimeoutMs?: number;
}

/** A request under way. */
export interface EdgeExchange {
  readonly outgoing: ClientRequest;
  /** What an error of `outgoing` means: `edge_unreachable` before a connection stood, `edge_lost` after that. */
  failure(cause?: unknown): GatewayError;
  /** A connection from the pool was closed by the edge just when it was used: the edge has not seen the request. */
  isStale(cause: unknown): boolean;
}

export interface EdgeConnection extends Disposable {
  open(method: string, path: string, headers?: Readonly<Record<string, string | number>>): EdgeExchange;
}

/** Connections kept for the next call; more are closed when they become idle. */
const maxIdleConnections = 256;

/** Owns the connections; disposing closes them. */
export function createEdgeConnection(options: HttpEdgeOptions): EdgeConnection {
  const { address, connectTimeoutMs = 5000 } = options;
  const tls = 'tls' in address ? address.tls : undefined;
  const agentOptions = { keepAlive: true, maxFreeSockets: maxIdleConnections, scheduling: 'lifo' } as const;
  const agent = tls === undefined ? new Agent(agentOptions) : new TlsAgent({ ...agentOptions, ...tls });
  const target =
    'socketPath' in address
      ? { socketPath: address.socketPath }
      : { host: address.host, port: address.port, protocol: tls === undefined ? 'http:' : 'https:' };
  return {
    open(method, path, headers = {}) {
      const outgoing = httpRequest({ ...target, agent, method, path, headers });
      let isConnected = false;
      outgoing.once('socket', (socket: Socket) => {
        if (!socket.connecting) {
          isConnected = true;
          return;
        }
        const cause = new Error(`no connection within ${connectTimeoutMs} ms`);
        const timer = setTimeout(() => outgoing.destroy(cause), connectTimeoutMs);
        const stop = () => clearTimeout(timer);
        socket.once(tls === undefined ? 'connect' : 'secureConnect', () => {
          isConnected = true;
          stop();
        });
        socket.once('close', stop);
      });
      // Without a listener a late error would end the process; whoever waits adds another.
      outgoing.on('error', ignoreError);
      return {
        outgoing,
        failure: (cause) =>
          isConnected
            ? new GatewayError('edge_lost', 'the node went away before it had answered', {
                component: 'edge',
                cause,
              })
            : new GatewayError('edge_unreachable', 'the node can not be reached', {
                component: 'edge',
                cause,
              }),
        isStale: (cause) => outgoing.reusedSocket && (cause as NodeJS.ErrnoException).code === 'ECONNRESET',
      };
    },
    [Symbol.dispose]: () => agent.destroy(),
  };
}

/** The answer's head. Rejects with the exchange's failure, or with the reason of `signal`, which also ends the request. */
export function responseOf(exchange: EdgeExchange, signal?: AbortSignal): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const { outgoing } = exchange;
  const onAbort = () => {
    reject(signal?.reason);
    outgoing.destroy();
  };
  signal?.addEventListener('abort', onAbort, { once: true });
  outgoing
    .on('response', resolve)
    .on('error', (cause) => reject(exchange.isStale(cause) ? cause : exchange.failure(cause)))
    .on('close', () => {
      signal?.removeEventListener('abort', onAbort);
      reject(exchange.failure());
    });
  if (signal?.aborted) onAbort();
  return promise;
}

const ignoreError = (): void => {};
