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
import { ChannelDirectory, serveChannelCall, serveChannelTunnel } from './http-channel-server.ts';
import { serveSandboxCall, serveSandboxEvents } from './http-sandbox-server.ts';
import { serveInvoke, serveUpgrade } from './http-server-calls.ts';
import { readJson, sendError, sendJson, sendLines } from './http-server-json.ts';
import { TailBody } from './http-tail-body.ts';
import { serveUse } from './http-use-server.ts';
import { edgePaths, logRequestSchema, servingSchema, tunnelProtocol } from './http-wire.ts';
import type { EdgeClient, LogRequest } from './port.ts';
import type { SandboxEdge } from './sandbox-port.ts';

/** Both halves of a listener: `request` for plain requests, `upgrade` for tunnels. They never throw. */
export interface EdgeHandler {
  request(request: IncomingMessage, response: ServerResponse): void;
  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void;
}

/** What is served: an edge, and the sandboxes it keeps. */
export type ServedEdge = EdgeClient & {
  /** Absent: calls about sandboxes are answered `not_supported_yet`. */
  readonly sandboxes?: SandboxEdge;
};

/** @param edge stays the caller's */
export function createEdgeHandler(edge: ServedEdge): EdgeHandler {
  const channels = new ChannelDirectory();
  return {
    request(request, response) {
      if (request.method === 'POST' && request.url === edgePaths.invoke) {
        void serveInvoke(edge, request, response);
        return;
      }
      if (request.method === 'POST' && request.url === edgePaths.channel) {
        void serveChannelCall(channels, request, response);
        return;
      }
      answer(edge, channels, request, response).catch((thrown) => sendError(response, thrown));
    },
    upgrade(request, socket, head) {
      if (request.headers.upgrade === tunnelProtocol && request.url === edgePaths.upgrade) {
        void serveUpgrade(edge, socket, head);
        return;
      }
      if (request.headers.upgrade === tunnelProtocol && request.url === edgePaths.channelTunnel) {
        void serveChannelTunnel(channels, socket, head);
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
export function createEdgeServer(edge: ServedEdge, tls?: TlsOptions): Server {
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

function sandboxesOf({ sandboxes }: ServedEdge): SandboxEdge {
  if (sandboxes !== undefined) return sandboxes;
  throw new GatewayError('not_supported_yet', 'this node keeps no sandboxes', { component: 'edge' });
}

async function answer(
  edge: ServedEdge,
  channels: ChannelDirectory,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
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
    case `POST ${edgePaths.sandboxCall}`:
      return serveSandboxCall(sandboxesOf(edge), request, response);
    case `POST ${edgePaths.sandboxEvents}`:
      return serveSandboxEvents(sandboxesOf(edge), request, response);
    case `POST ${edgePaths.sandboxUse}`:
      return serveUse(sandboxesOf(edge), channels, request, response);
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
