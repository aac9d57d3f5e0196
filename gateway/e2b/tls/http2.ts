/** HTTP/2 beside HTTP/1.1 on one TLS listener, for those names whose doors speak it. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Http2Server, type ServerHttp2Session } from 'node:http2';
import type { Server, ServerOptions } from 'node:https';
import type { TLSSocket } from 'node:tls';

/** Most requests at once on one connection; the SDK's own limit is higher and it waits for us. */
const maxStreams = 250;
const windowBytes = 1024 * 1024;
const headerListBytes = 64 * 1024;

/**
 * Chooses the protocol by name: ports of sandboxes speak HTTP/1.1, which their servers do and which carries upgrades.
 * Clients that offer neither get no connection.
 */
export function alpnFor(domain: string): NonNullable<ServerOptions['ALPNCallback']> {
  const suffix = `.${domain.toLowerCase()}`;
  return ({ servername, protocols }) => {
    const name = servername.toLowerCase();
    const left = name.endsWith(suffix) ? name.slice(0, -suffix.length) : '';
    const speaksHttp2 = left === 'api' || left === 'sandbox' || left.startsWith('49983-');
    if (speaksHttp2 && protocols.includes('h2')) return 'h2';
    return protocols.includes('http/1.1') ? 'http/1.1' : undefined;
  };
}

export interface Http2Side {
  /** Asks clients to come no more; requests under way end. */
  drain(): void;
  /** Ends every connection now. */
  destroy(): void;
}

/**
 * Takes over connections of `server` that agreed on HTTP/2. Requests are of node's compatibility classes; those that came to a
 * connection made for another name are for `handle` to refuse.
 */
export function serveHttp2(
  server: Server,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Http2Side {
  const sessions = new Set<ServerHttp2Session>();
  const http2: Http2Server = createServer(
    {
      maxSessionMemory: 64,
      settings: {
        maxConcurrentStreams: maxStreams,
        initialWindowSize: windowBytes,
        maxHeaderListSize: headerListBytes,
      },
    },
    (request, response) =>
      handle(request as unknown as IncomingMessage, response as unknown as ServerResponse),
  );
  http2.on('session', (session) => {
    sessions.add(session);
    session.setLocalWindowSize?.(8 * windowBytes);
    session.once('close', () => sessions.delete(session));
    session.on('error', () => {});
  });
  http2.on('sessionError', () => {});
  // node's own listener comes first; it would read HTTP/1.1 from whatever connects.
  const serveHttp1 = server.listeners('secureConnection')[0] as ((socket: TLSSocket) => void) | undefined;
  if (serveHttp1 === undefined) throw new Error('an HTTPS server has a listener for its connections');
  server.off('secureConnection', serveHttp1);
  server.on('secureConnection', (socket: TLSSocket) => {
    if (socket.alpnProtocol === 'h2') http2.emit('connection', socket);
    else serveHttp1.call(server, socket);
  });
  return {
    drain() {
      for (const session of sessions) session.close();
    },
    destroy() {
      for (const session of sessions) session.destroy();
    },
  };
}
