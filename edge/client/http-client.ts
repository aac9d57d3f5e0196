/** An edge in another process, over HTTP/1.1 on a unix socket or TCP. */
import type { Readable } from 'node:stream';
import { z } from 'zod';
import { GatewayError, logLineSchema, machineSchema, nodeSchema, poolSchema } from '../../sdk/index.ts';
import { invokeOver, upgradeOver } from './http-client-calls.ts';
import { askForLines, callJson, readLines } from './http-client-json.ts';
import {
  createEdgeConnection,
  type EdgeConnection,
  type HttpEdgeOptions,
  responseOf,
} from './http-connection.ts';
import { createHttpSandboxEdge } from './http-sandbox-client.ts';
import { buildLineSchema, edgePaths, servingAnswerSchema } from './http-wire.ts';
import type { BuildEvent, EdgeClient } from './port.ts';
import type { SandboxEdge } from './sandbox-port.ts';

export type { EdgeAddress, HttpEdgeOptions } from './http-connection.ts';

/**
 * The contract of `EdgeClient` across a connection. Beside what the edge says, every method may reject with `edge_unreachable`
 * (it never got the request) or `edge_lost` (it may have acted on it). Disposing closes the connections.
 */
export function createHttpEdgeClient(
  options: HttpEdgeOptions,
): EdgeClient & { readonly sandboxes: SandboxEdge } & Disposable {
  const connection = createEdgeConnection(options);
  const json = <T>(schema: z.ZodType<T>, method: string, path: string, value?: unknown) =>
    callJson(connection, { schema, method, path, value, isRepeatable: true });
  return {
    node: () => json(nodeSchema, 'GET', edgePaths.node),
    machines: () => json(z.array(machineSchema), 'GET', edgePaths.machines),
    pools: () => json(z.array(poolSchema), 'GET', edgePaths.pools),
    metrics: () => json(z.string(), 'GET', edgePaths.metrics),
    setServing: (versions) => json(servingAnswerSchema, 'PUT', edgePaths.serving, { versions }),
    async removeVersion(digest) {
      await json(z.null(), 'DELETE', `${edgePaths.versions}/${digest}`);
    },
    invoke: (request) => invokeOver(connection, request),
    upgrade: (request) => upgradeOver(connection, request),
    build: (archive, { signal }) => buildOver(connection, archive, signal),
    logs: ({ signal, ...query }) => askForLines(connection, edgePaths.logs, query, logLineSchema, signal),
    sandboxes: createHttpSandboxEdge(connection),
    [Symbol.dispose]: () => connection[Symbol.dispose](),
  };
}

async function* buildOver(
  connection: EdgeConnection,
  archive: Readable,
  signal: AbortSignal,
): AsyncGenerator<BuildEvent, void> {
  const exchange = connection.open('POST', edgePaths.build, { 'content-type': 'application/gzip' });
  const { outgoing } = exchange;
  let archiveError: Error | undefined;
  archive.on('error', (error) => {
    archiveError = error;
    outgoing.destroy();
  });
  archive.pipe(outgoing);
  // An edge that refuses at once does not read the rest; its answer must not wait for that.
  outgoing.on('close', () => archive.destroy());
  try {
    for await (const event of readLines(await responseOf(exchange, signal), buildLineSchema, () =>
      exchange.failure(),
    )) {
      if (event.type !== 'task') yield event;
      else {
        const { ms, ...task } = event;
        yield ms === undefined ? task : { ...task, ms };
      }
    }
  } catch (thrown) {
    throw archiveError ?? (thrown instanceof GatewayError ? thrown : exchange.failure(thrown));
  } finally {
    outgoing.destroy();
  }
}
