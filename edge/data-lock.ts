import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { realpath } from 'node:fs/promises';
import { createServer } from 'node:net';
import { GatewayError } from '../sdk/index.ts';

/**
 * Makes sure that one edge at a time owns a data directory. The lock is a listening socket in Linux's abstract namespace: it has no
 * file, and the kernel frees it however the process ends.
 * @throws GatewayError `conflict` when another edge has it
 */
export async function lockDataDirectory(directory: string): Promise<AsyncDisposable> {
  const name = createHash('sha256')
    .update(await realpath(directory))
    .digest('hex');
  const server = createServer((socket) => socket.destroy());
  server.listen(`\0snapgate-edge-${name}`);
  try {
    await once(server, 'listening');
  } catch (cause) {
    throw new GatewayError('conflict', `another edge is using ${directory}`, { component: 'edge', cause });
  }
  server.unref();
  return {
    async [Symbol.asyncDispose]() {
      server.close();
    },
  };
}
