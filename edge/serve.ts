/** Composition root of an edge that runs apart from its gateway: the contract over a unix socket, or over TCP with mutual TLS. */
import { once } from 'node:events';
import { chmod, readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { GatewayError } from '../sdk/index.ts';
import { createEdgeServer } from './client/http-server.ts';
import { dataLayout } from './config.ts';
import { openEdge, type StartStep } from './main.ts';

export interface ServeEdgeOptions {
  /** Absolute. */
  readonly dataDirectory: string;
  /**
   * An address, which needs certificates, or the descriptor of a listening unix socket that the process was started with, whose
   * mode its maker answers for. Default: the unix socket `edge.sock` in the data directory, mode 0600.
   */
  readonly listen?: { readonly host: string; readonly port: number } | { readonly fd: number };
  readonly log: Logger;
  readonly onStep: StartStep;
  readonly signal: AbortSignal;
}

/** Files of mutual TLS in the data directory: the CA that signs gateways and edges, and this one's own pair. */
export async function readTlsFiles(
  dataDirectory: string,
  role: 'edge' | 'gateway',
): Promise<{ readonly ca: Buffer; readonly cert: Buffer; readonly key: Buffer }> {
  const read = async (name: string) => {
    const path = join(dataDirectory, 'tls', name);
    return readFile(path).catch((cause: unknown) => {
      throw new GatewayError(
        'invalid_request',
        `an edge on TCP speaks mutual TLS only, and ${path} can't be read`,
        { component: 'edge', field: 'listen', cause },
      );
    });
  };
  const [ca, cert, key] = await Promise.all([read('ca.crt'), read(`${role}.crt`), read(`${role}.key`)]);
  return { ca, cert, key };
}

/** How long a stop waits for leases to end. */
const drainMs = 10_000;

/** A socket file whose process died is in the way of the next one; one that is answered is somebody's. */
async function removeStaleSocket(path: string): Promise<void> {
  const socket = connect(path);
  const isAlive = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  if (isAlive) throw new GatewayError('conflict', `another edge listens on ${path}`, { component: 'edge' });
  await rm(path, { force: true });
}

/** Opens the edge and listens. `close` drains, then stops; idempotent. */
export async function serveEdge(
  options: ServeEdgeOptions,
): Promise<{ readonly address: string; close(): Promise<void> }> {
  const tls =
    options.listen === undefined || 'fd' in options.listen
      ? undefined
      : {
          ...(await readTlsFiles(options.dataDirectory, 'edge')),
          requestCert: true,
          rejectUnauthorized: true,
        };
  const edge = await openEdge(options, { dataDirectory: options.dataDirectory });
  try {
    const server = createEdgeServer(edge, tls);
    const { edgeSocket } = dataLayout(options.dataDirectory);
    if (options.listen === undefined) {
      await removeStaleSocket(edgeSocket);
      server.listen(edgeSocket);
    } else server.listen(options.listen);
    await once(server, 'listening');
    if (options.listen === undefined) await chmod(edgeSocket, 0o600);
    const bound = server.address();
    if (tls === undefined && typeof bound !== 'string') {
      server.close();
      throw new GatewayError('invalid_request', 'an edge takes only a unix socket without mutual TLS', {
        component: 'edge',
        field: 'listen',
      });
    }
    let closing: Promise<void> | undefined;
    const close = async () => {
      server.close();
      await edge.close({ deadlineMs: drainMs });
      server.closeAllConnections();
    };
    return {
      address:
        typeof bound === 'string' || bound === null
          ? `unix:${bound ?? edgeSocket}`
          : `https://${bound.address}:${bound.port}`,
      close() {
        closing ??= close();
        return closing;
      },
    };
  } catch (error) {
    await edge.dispose();
    throw error;
  }
}
