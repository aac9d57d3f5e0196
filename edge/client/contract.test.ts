import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeEdgeClient, type EdgePair } from './contract.ts';
import { createHttpEdgeClient, type EdgeAddress } from './http-client.ts';
import { createEdgeServer } from './http-server.ts';
import type { EdgeClient } from './port.ts';

describeEdgeClient('in one process', async (edge) => ({
  client: edge,
  [Symbol.asyncDispose]: async () => {},
}));

describeEdgeClient('over a unix socket', async (edge) => {
  const directory = await mkdtemp(join(tmpdir(), 'edge-contract-'));
  const socketPath = join(directory, 'edge.sock');
  const pair = await join_(edge, { socketPath }, (server) => server.listen(socketPath));
  return {
    client: pair.client,
    async [Symbol.asyncDispose]() {
      await pair[Symbol.asyncDispose]();
      await rm(directory, { recursive: true });
    },
  };
});

describeEdgeClient('over TCP', (edge) => join_(edge, null, (server) => server.listen(0, '127.0.0.1')));

async function join_(
  edge: EdgeClient,
  fixed: EdgeAddress | null,
  listen: (server: Server) => void,
): Promise<EdgePair> {
  const server = createEdgeServer(edge);
  listen(server);
  await once(server, 'listening');
  const address = fixed ?? { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
  const client = createHttpEdgeClient({ address });
  return {
    client,
    async [Symbol.asyncDispose]() {
      client[Symbol.dispose]();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
