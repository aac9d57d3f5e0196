import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeEdgeClient } from './contract.ts';
import type { EdgePair } from './contract-peers.ts';
import { createHttpEdgeClient, type EdgeAddress } from './http-client.ts';
import { createEdgeHandler, createEdgeServer } from './http-server.ts';

describeEdgeClient('in one process', async (edge) => ({
  client: edge,
  [Symbol.asyncDispose]: async () => {},
}));

describeEdgeClient('over a unix socket', async (edge) => {
  const directory = await mkdtemp(join(tmpdir(), 'edge-contract-'));
  const socketPath = join(directory, 'edge.sock');
  const server = createEdgeServer(edge).listen(socketPath);
  await once(server, 'listening');
  return pairOf(server, { socketPath }, () => rm(directory, { recursive: true }));
});

describeEdgeClient('over TCP, on a server of the caller', async (edge) => {
  const handler = createEdgeHandler(edge);
  const server = createServer(handler.request)
    .on('upgrade', (request, socket, head) => handler.upgrade(request, socket as Socket, head))
    .listen(0, '127.0.0.1');
  await once(server, 'listening');
  return pairOf(server, { host: '127.0.0.1', port: (server.address() as AddressInfo).port });
});

function pairOf(server: Server, address: EdgeAddress, cleanUp = async () => {}): EdgePair {
  const client = createHttpEdgeClient({ address });
  return {
    client,
    async [Symbol.asyncDispose]() {
      client[Symbol.dispose]();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await cleanUp();
    },
  };
}
