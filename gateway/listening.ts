/** Where servers listen, and how they stop without a client noticing. */

import type { Server } from 'node:http';
import { Server as NetServer } from 'node:net';
import { type Clock, GatewayError } from '../sdk/index.ts';

/**
 * An address, or the descriptor of a listening socket that the process was started with. Whoever holds such a socket (systemd)
 * keeps it over a restart: clients that come meanwhile wait instead of being refused.
 */
export type ListenAddress =
  | {
      readonly host: string;
      /** 0: one that is free. */
      readonly port: number;
    }
  | { readonly fd: number };

/** `host:port`, with brackets around an IPv6 host, or `fd:N`. Throws `invalid_request`. */
export function parseListen(listen: string): ListenAddress {
  const match = /^(?:\[([0-9a-f:]+)\]|([^:[\]]+)):(\d{1,5})$/i.exec(listen);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) {
    throw new GatewayError(
      'invalid_request',
      `${listen} is not an address to listen on, such as 127.0.0.1:7070, nor a passed socket, such as fd:3`,
      { field: 'listen' },
    );
  }
  return match[2] === 'fd' ? { fd: port } : { host: match[1] ?? match[2] ?? '', port };
}

/** Resolves when `server` listens. */
export function listening(server: NetServer, address: ListenAddress): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen(address, () => {
    server.off('error', reject);
    resolve();
  });
  return promise;
}

/**
 * Takes no more connections and resolves when the last one is gone. Idle ones are kept for `idleMs`: a request may be on its way
 * on each of them, which a close would lose; its answer then says that the connection ends.
 */
export function closed(
  server: Server,
  options: { readonly clock: Clock; readonly idleMs: number },
): Promise<void> {
  const cancel = options.clock.schedule(options.idleMs, () => server.closeIdleConnections());
  return new Promise((resolve) => {
    // Not the HTTP server's own `close`, which ends idle connections at once.
    NetServer.prototype.close.call(server, () => {
      cancel();
      // Which also ends the checks of connections that it repeats.
      server.close();
      resolve();
    });
  });
}
