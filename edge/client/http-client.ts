/** An edge in another process, over HTTP/1.1 on a unix socket or TCP. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import {
  GatewayError,
  type LogLine,
  logLineSchema,
  machineSchema,
  nodeSchema,
  poolSchema,
} from '../../sdk/index.ts';
import { invokeOver, upgradeOver } from './http-client-calls.ts';
import {
  createEdgeConnection,
  type EdgeConnection,
  type HttpEdgeOptions,
  responseOf,
} from './http-connection.ts';
import { buildLineSchema, decodeError, edgePaths, lastLineSchema, servingAnswerSchema } from './http-wire.ts';
import type { BuildEvent, EdgeClient } from './port.ts';

export type { EdgeAddress, HttpEdgeOptions } from './http-connection.ts';

const maxJsonBytes = 64 * 1024 * 1024;
/** A build's result carries a whole definition, a log line up to 64 KiB of text. */
const maxLineLength = 4 * 1024 * 1024;

/**
 * The contract of `EdgeClient` across a connection. Beside what the edge says, every method may reject with `edge_unreachable`
 * (it never got the request) or `edge_lost` (it may have acted on it). Disposing closes the connections.
 */
export function createHttpEdgeClient(options: HttpEdgeOptions): EdgeClient & Disposable {
  const connection = createEdgeConnection(options);
  const json = <T>(schema: z.ZodType<T>, method: string, path: string, value?: unknown) =>
    callJson(connection, schema, method, path, value);
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
    logs: ({ signal, ...query }) => logsOver(connection, query, signal),
    [Symbol.dispose]: () => connection[Symbol.dispose](),
  };
}

async function callJson<T>(
  connection: EdgeConnection,
  schema: z.ZodType<T>,
  method: string,
  path: string,
  value: unknown,
): Promise<T> {
  const body = value === undefined ? undefined : JSON.stringify(value);
  for (let isSecondTry = false; ; isSecondTry = true) {
    const exchange = connection.open(
      method,
      path,
      body === undefined ? {} : { 'content-length': Buffer.byteLength(body) },
    );
    exchange.outgoing.end(body);
    try {
      return parsed(schema, await readDocument(await responseOf(exchange), () => exchange.failure()));
    } catch (thrown) {
      if (thrown instanceof GatewayError) throw thrown;
      // All of these can be asked twice without harm.
      if (isSecondTry || !exchange.isStale(thrown)) throw exchange.failure(thrown);
    }
  }
}

/** Reads a whole JSON document; one with an error status is thrown as the error it tells. */
async function readDocument(incoming: IncomingMessage, lost: () => GatewayError): Promise<unknown> {
  const chunks: Buffer[] = [];
  let receivedBytes = 0;
  try {
    for await (const chunk of incoming as AsyncIterable<Buffer>) {
      receivedBytes += chunk.length;
      if (receivedBytes > maxJsonBytes) throw unreadable('it is too large');
      chunks.push(chunk);
    }
  } catch (thrown) {
    throw thrown instanceof GatewayError ? thrown : lost();
  }
  const value = parseJson(Buffer.concat(chunks).toString('utf8'));
  if (incoming.statusCode !== 200) throw decodeError(value);
  return value;
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

async function* logsOver(
  connection: EdgeConnection,
  query: unknown,
  signal: AbortSignal,
): AsyncGenerator<LogLine, void> {
  const body = JSON.stringify(query);
  const exchange = connection.open('POST', edgePaths.logs, { 'content-length': Buffer.byteLength(body) });
  exchange.outgoing.end(body);
  try {
    yield* readLines(await responseOf(exchange, signal), logLineSchema, () => exchange.failure());
  } finally {
    exchange.outgoing.destroy();
  }
}

/** Values of an answer of `sendLines`; its last line tells whether it is complete. */
async function* readLines<T>(
  incoming: IncomingMessage,
  schema: z.ZodType<T>,
  lost: () => GatewayError,
): AsyncGenerator<T, void> {
  if (incoming.statusCode !== 200) {
    await readDocument(incoming, lost);
    throw unreadable(`it has status ${incoming.statusCode}`);
  }
  const line = z.strictObject({ value: schema });
  let pending = '';
  try {
    for await (const text of incoming.setEncoding('utf8') as AsyncIterable<string>) {
      const lines = (pending + text).split('\n');
      pending = lines.pop() ?? '';
      if (pending.length > maxLineLength) throw unreadable('a line of it is too long');
      for (const json of lines) {
        const document = parseJson(json);
        const last = lastLineSchema.safeParse(document);
        if (!last.success) yield parsed(line, document).value;
        else if ('error' in last.data) throw decodeError(last.data.error);
        else return;
      }
    }
  } catch (thrown) {
    throw thrown instanceof GatewayError ? thrown : lost();
  }
  throw pending === '' ? lost() : unreadable('its last line is not one');
}

function parsed<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw unreadable('it is not what was asked for', result.error);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw unreadable('it is not JSON', cause);
  }
}

const unreadable = (why: string, cause?: unknown) =>
  new GatewayError('internal', `the answer of the node can not be read: ${why}`, {
    component: 'edge',
    cause,
  });
