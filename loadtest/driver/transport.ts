import { Pool } from 'undici';
import type { Exchange } from './exchange.ts';

/** A request as the HTTP client wants it. Prepare it once per target: the sending loop reuses it. */
export interface OutgoingRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Path and query, already encoded. */
  readonly path: string;
  /** Flat pairs of name and value. */
  readonly headers: string[];
  readonly body?: string | Uint8Array;
}

/** Sends requests to one origin. `dispose` drops what is still open. */
export interface Transport extends AsyncDisposable {
  /** Starts a request; the exchange settles later, or at the time limit, and never throws. */
  send(request: OutgoingRequest, exchange: Exchange): void;
}

/** Expired exchanges are looked for this often, which bounds how much later than its limit a timeout is recorded. */
const sweepMs = 20;

/**
 * HTTP/1.1 with one request per connection at a time (no pipelining: a slow answer must not hold up the next), and no
 * limit on connections of its own, since the driver bounds what is in flight.
 */
export function createTransport(options: {
  /** Origin, such as `http://127.0.0.1:7070`. */
  readonly origin: string;
  readonly maxConnections: number;
  /** Time limit of a request from its send, milliseconds. */
  readonly timeoutMs: number;
  /** The clock of the exchanges: milliseconds from the start of the schedule. */
  readonly now: () => number;
}): Transport {
  const pool = new Pool(options.origin, {
    connections: options.maxConnections,
    pipelining: 1,
    allowH2: false,
    connect: { timeout: options.timeoutMs },
    keepAliveTimeout: 60_000,
    // Ours is exact and covers the whole exchange; undici's are coarse and cover parts.
    headersTimeout: 0,
    bodyTimeout: 0,
    maxResponseSize: -1,
  });
  // In order of sending, so the sweep stops at the first that still has time. Exchanges leave when they settle.
  const open = new Set<Exchange>();
  const timer = setInterval(() => {
    const now = options.now();
    for (const exchange of open) {
      if (exchange.sentMs + options.timeoutMs > now) break;
      exchange.expire();
    }
  }, sweepMs);
  return {
    send(request, exchange) {
      exchange.watchers = open;
      open.add(exchange);
      pool.dispatch(request, exchange);
    },
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      for (const exchange of open) exchange.expire();
      await pool.destroy();
    },
  };
}
