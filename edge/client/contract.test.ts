import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeEdgeClient, describeSandboxes } from './contract.ts';
import { scripted } from './contract-peers.ts';
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

describeSandboxes('sandboxes in one process', async (sandboxes) => ({
  client: sandboxes,
  [Symbol.asyncDispose]: async () => {},
}));

describeSandboxes('sandboxes over a unix socket', async (sandboxes) => {
  const directory = await mkdtemp(join(tmpdir(), 'edge-contract-'));
  const socketPath = join(directory, 'edge.sock');
  const server = createEdgeServer({ ...scripted({}), sandboxes }).listen(socketPath);
  await once(server, 'listening');
  return sandboxesOf(pairOf(server, { socketPath }, () => rm(directory, { recursive: true })));
});

describeSandboxes('sandboxes over TCP', async (sandboxes) => {
  const server = createEdgeServer({ ...scripted({}), sandboxes }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return sandboxesOf(pairOf(server, { host: '127.0.0.1', port }));
});

const sandboxesOf = (pair: ReturnType<typeof pairOf>) => ({
  client: pair.client.sandboxes,
  [Symbol.asyncDispose]: () => pair[Symbol.asyncDispose](),
});

function pairOf(server: Server, address: EdgeAddress, cleanUp = async () => {}) {
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
