import { request as httpRequest, type IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import { Pool } from 'undici';
import { GatewayError } from '../../sdk/index.ts';
import { createTunnelConnector, type SandboxChannel } from '../guest/index.ts';

/** A request as the guest's server shall see it; headers are raw pairs without hop-by-hop ones. */
export interface GuestRequest {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  readonly body: Readable | Uint8Array | null;
  readonly signal: AbortSignal;
}

export interface GuestResponse {
  readonly status: number;
  readonly rawHeaders: readonly string[];
  readonly body: Readable;
  readonly trailers: () => readonly string[];
}

export type GuestUpgrade =
  | {
      readonly isUpgraded: true;
      readonly rawHeaders: readonly string[];
      readonly socket: Duplex;
      readonly head: Buffer;
    }
  | ({ readonly isUpgraded: false } & GuestResponse);

export interface GuestHttpOptions {
  readonly port: number;
  /** Connections into the guest; sized to what the pool leases at once. */
  readonly connections: number;
}

/** No tunnel could be opened, so no byte of the request reached the function. `cause` says why. */
export class NotDelivered extends Error {
  override readonly name = 'NotDelivered';
}

const notDelivered = (cause: unknown) => new NotDelivered('no connection into the guest', { cause });

/** Idle time after which we close a connection: below the 5 s of Node's own server, the shortest in common use. */
const idleMs = 4_000;
const maxHeaderBytes = 64 * 1024;

/**
 * HTTP to one port of one machine, over tunnels of one guest channel. It lives exactly as long as that channel, so no
 * connection can outlive a restore.
 */
export class GuestHttp {
  readonly #pool: Pool;
  readonly #channel: SandboxChannel;
  readonly #options: GuestHttpOptions;

  constructor(channel: SandboxChannel, options: GuestHttpOptions) {
    this.#channel = channel;
    this.#options = options;
    const connector = createTunnelConnector(channel, options.port);
    this.#pool = new Pool('http://guest', {
      connect: (target, callback) =>
        connector(target, (...outcome) => {
          if (outcome[0] === null) callback(...outcome);
          else callback(notDelivered(outcome[0]), null);
        }),
      connections: options.connections,
      pipelining: 1,
      keepAliveTimeout: idleMs,
      keepAliveMaxTimeout: idleMs,
      keepAliveTimeoutThreshold: 500,
      // Budgets are ours: the caller's signal ends a request.
      headersTimeout: 0,
      bodyTimeout: 0,
      maxHeaderSize: maxHeaderBytes,
    });
  }

  /** Resolves with the response head. Rejects with undici's own errors; the caller knows what was promised to whom. */
  async request(request: GuestRequest): Promise<GuestResponse> {
    const answer = await this.#pool.request({
      method: request.method as 'GET',
      path: request.target,
      headers: request.rawHeaders as string[],
      body: request.body,
      signal: request.signal,
      responseHeaders: 'raw',
    });
    // With `responseHeaders: 'raw'` undici answers the flat list, although its type says a record.
    return {
      status: answer.statusCode,
      rawHeaders: (answer.headers as unknown as (string | Buffer)[]).map(String),
      body: answer.body,
      trailers: () =>
        Object.entries(answer.trailers).flatMap(([name, value]) =>
          [value].flat().flatMap((one) => [name, String(one)]),
        ),
    };
  }

  /** An upgrade takes a tunnel of its own and keeps it. */
  async upgrade(request: GuestRequest): Promise<GuestUpgrade> {
    const tunnel = await this.#channel
      .tunnel(this.#options.port, { signal: request.signal })
      .catch((error: unknown) => {
        throw notDelivered(error);
      });
    return new Promise((resolve, reject) => {
      const outgoing = httpRequest({
        method: request.method,
        path: request.target,
        headers: request.rawHeaders as string[],
        createConnection: () => tunnel,
        setHost: false,
        maxHeaderSize: maxHeaderBytes,
        signal: request.signal,
      });
      const fail = (error: unknown) => {
        tunnel.destroy();
        reject(error);
      };
      outgoing.on('error', fail);
      outgoing.on('upgrade', (response: IncomingMessage, socket: Duplex, head: Buffer) => {
        outgoing.off('error', fail);
        outgoing.on('error', () => socket.destroy());
        resolve({ isUpgraded: true, rawHeaders: response.rawHeaders, socket, head });
      });
      outgoing.on('response', (response: IncomingMessage) => {
        response.on('close', () => tunnel.destroy());
        resolve({
          isUpgraded: false,
          status: response.statusCode ?? 502,
          rawHeaders: response.rawHeaders,
          body: response,
          trailers: () => response.rawTrailers,
        });
      });
      outgoing.end();
    });
  }

  /** A small request of our own, such as a readiness probe: answers the status and at most 64 KiB of the body. */
  async probe(
    request: { readonly method: string; readonly path: string; readonly body?: string },
    options: { readonly signal: AbortSignal },
  ): Promise<{ readonly status: number; readonly body: string }> {
    const answer = await this.request({
      method: request.method,
      target: request.path,
      rawHeaders: [
        'host',
        'localhost',
        'user-agent',
        'snapgate-probe',
        ...(request.body === undefined ? [] : ['content-type', 'application/json']),
      ],
      body: request.body === undefined ? null : Buffer.from(request.body),
      signal: options.signal,
    });
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of answer.body) {
      if (size < 64 * 1024) chunks.push(chunk as Buffer);
      size += (chunk as Buffer).length;
      if (size > 16 * 1024 * 1024)
        throw new GatewayError('guest_unreachable', 'the answer to a probe is larger than 16 MiB', {
          component: 'guest',
        });
    }
    return {
      status: answer.status,
      body: Buffer.concat(chunks)
        .subarray(0, 64 * 1024)
        .toString('utf8'),
    };
  }

  /** Waits for what is in flight, then closes every connection as a client does that has no more to ask. */
  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** Drops every connection now. */
  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }
}
