import type { Socket } from 'node:net';
import type { buildConnector } from 'undici';
import type { GuestChannel } from './port.ts';

/** How long a connection attempt may take; a server inside the guest accepts on loopback or not at all. */
const connectMs = 10_000;

/**
 * undici's `connect` option over a guest channel: every connection of the client is a tunnel to `port`. The client owns
 * the connections; closing the channel ends them.
 */
export function createTunnelConnector(
  channel: Pick<GuestChannel, 'tunnel'>,
  port: number,
): buildConnector.connector {
  return (_options, callback) => {
    channel.tunnel(port, { signal: AbortSignal.timeout(connectMs) }).then(
      // undici uses the stream half of a socket only; what else it calls, the tunnel has.
      (tunnel) => callback(null, tunnel as Socket),
      (error: Error) => callback(error, null),
    );
  };
}
