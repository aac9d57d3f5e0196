/** Composition roots of gateway and edge apart: two processes, joined by the contract over HTTP. */
import { mkdir } from 'node:fs/promises';
import { createHttpEdgeClient, type EdgeAddress } from '../edge/client/index.ts';
import { dataLayout, readTlsFiles, serveEdge } from '../edge/index.ts';
import { GatewayError } from '../sdk/index.ts';
import { parseListen } from './listening.ts';
import {
  certificateDirectory,
  createLog,
  openGateway,
  type RunningService,
  type ServiceOptions,
} from './runtime.ts';

export interface GatewayServiceOptions extends ServiceOptions {
  /** The edge: a unix socket's absolute path or `https://host:port`. Default: the socket in the data directory. */
  readonly edge?: string;
  readonly logLevel?: string;
}

async function edgeAddress(options: GatewayServiceOptions): Promise<EdgeAddress> {
  const text = options.edge ?? dataLayout(options.dataDirectory).edgeSocket;
  if (text.startsWith('/')) return { socketPath: text };
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'https:') {
    throw new GatewayError(
      'invalid_request',
      `${text} is neither the absolute path of a socket nor https://host:port`,
      { field: 'edge' },
    );
  }
  return {
    host: url.hostname,
    port: Number(url.port || 443),
    tls: await readTlsFiles(options.dataDirectory, 'gateway'),
  };
}

/** The front door alone. It listens at once and gets ready when its edge answers. */
export async function gateway(options: GatewayServiceOptions): Promise<RunningService> {
  const log = createLog(options.logLevel ?? 'info');
  await mkdir(options.dataDirectory, { recursive: true, mode: 0o700 });
  const edge = createHttpEdgeClient({ address: await edgeAddress(options) });
  try {
    const service = await openGateway(
      { edge, log, sandboxes: edge.sandboxes },
      {
        ...{ listen: options.listen, domain: options.domain, tls: options.tls },
        paths: { ...dataLayout(options.dataDirectory), tls: certificateDirectory(options.dataDirectory) },
      },
    );
    return {
      ...service,
      close: () => service.close().finally(() => edge[Symbol.dispose]()),
    };
  } catch (error) {
    edge[Symbol.dispose]();
    throw error;
  }
}

export interface EdgeServiceOptions extends ServiceOptions {
  readonly onStep: (title: string) => void;
  readonly signal: AbortSignal;
  readonly logLevel?: string;
}

/** A node alone, for gateways elsewhere. */
export async function edge(
  options: EdgeServiceOptions,
): Promise<{ readonly url: string; close(): Promise<void> }> {
  const { listen, logLevel, ...rest } = options;
  const service = await serveEdge({
    ...rest,
    log: createLog(logLevel ?? 'info'),
    ...(listen === undefined ? {} : { listen: parseListen(listen) }),
  });
  return { url: service.address, close: () => service.close() };
}
