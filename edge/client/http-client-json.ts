/** Documents and lines between an edge and its gateways: the gateway's end. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import { type EdgeConnection, responseOf } from './http-connection.ts';
import { decodeError, lastLineSchema } from './http-wire.ts';

const maxJsonBytes = 64 * 1024 * 1024;
/** A build's result carries a whole definition, a log line up to 64 KiB of text. */
const maxLineLength = 4 * 1024 * 1024;

/** One call whose answer is a document. */
export interface JsonCall<T> {
  readonly method: string;
  readonly path: string;
  readonly value?: unknown;
  readonly schema: z.ZodType<T>;
  /** Doing it twice does no harm, so it is asked again when a kept connection turns out to be closed. */
  readonly isRepeatable: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** @throws GatewayError what the edge said; `edge_unreachable`, `edge_lost`; the reason of the signal */
export async function callJson<T>(connection: EdgeConnection, call: JsonCall<T>): Promise<T> {
  const { method, path, value, schema, isRepeatable, signal } = call;
  const body = value === undefined ? undefined : JSON.stringify(value);
  for (let isSecondTry = false; ; isSecondTry = true) {
    const exchange = connection.open(
      method,
      path,
      body === undefined ? {} : { 'content-length': Buffer.byteLength(body) },
    );
    exchange.outgoing.end(body);
    try {
      return parsed(schema, await readDocument(await responseOf(exchange, signal), () => exchange.failure()));
    } catch (thrown) {
      if (signal?.aborted) throw signal.reason;
      if (thrown instanceof GatewayError) throw thrown;
      if (isSecondTry || !isRepeatable || !exchange.isStale(thrown)) throw exchange.failure(thrown);
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

/** Values of an answer of `sendLines`; its last line tells whether it is complete. */
export async function* readLines<T>(
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

/** The value, or that the answer can't be read. */
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

/** Lines that a document asked for; ending the iteration ends them at the edge. */
export async function* askForLines<T>(
  connection: EdgeConnection,
  path: string,
  query: unknown,
  schema: z.ZodType<T>,
  signal: AbortSignal,
): AsyncGenerator<T, void> {
  const body = JSON.stringify(query);
  const exchange = connection.open('POST', path, { 'content-length': Buffer.byteLength(body) });
  exchange.outgoing.end(body);
  try {
    yield* readLines(await responseOf(exchange, signal), schema, () => exchange.failure());
  } finally {
    exchange.outgoing.destroy();
  }
}

/** Documents in a body, one a line. The body is destroyed when the reader stops early. */
export async function* readJsonLines<T>(body: Readable, schema: z.ZodType<T>): AsyncGenerator<T, void> {
  let pending = '';
  try {
    for await (const text of body.setEncoding('utf8') as AsyncIterable<string>) {
      const lines = (pending + text).split('\n');
      pending = lines.pop() ?? '';
      if (pending.length > maxLineLength) throw unreadable('a line of it is too long');
      for (const json of lines) yield parsed(schema, parseJson(json));
    }
  } finally {
    body.destroy();
  }
}
