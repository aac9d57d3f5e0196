/** Bodies that are bytes and no JSON. */
import { Readable } from 'node:stream';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';
import { GatewayError } from '../../sdk/index.ts';

/** An answer that streams `body` as fast as the client reads; destroys it when the client leaves. */
export function streamResponse(
  body: Readable,
  status: number,
  headers: Readonly<Record<string, string>>,
): Response {
  const stream = Readable.toWeb(body) as unknown as ReadableStream<Uint8Array>;
  return new Response(stream, { status, headers: { 'cache-control': 'no-store', ...headers } });
}

/** A request's body as a stream that is pulled only as fast as somebody reads it. */
export function bodyStream(request: Request): Readable {
  return request.body === null
    ? Readable.from([], { objectMode: false })
    : Readable.fromWeb(request.body as unknown as NodeReadableStream<Uint8Array>);
}

/** A request's whole body. @throws GatewayError `body_too_large` */
export async function readBounded(request: Request, limitBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  if (request.body !== null) {
    for await (const chunk of request.body) {
      size += chunk.length;
      if (size > limitBytes) {
        const message = `the body is over the limit of ${limitBytes} bytes; send the rest at its offset`;
        throw new GatewayError('body_too_large', message, { extra: { limitBytes } });
      }
      chunks.push(chunk);
    }
  }
  return Buffer.concat(chunks);
}

const rangePattern = /^bytes=(?:([0-9]{1,15})-([0-9]{0,15})|-([0-9]{1,15}))$/;

/** Part of a file that a `Range` header wants: first byte and how many. */
export interface ByteRange {
  readonly offset: number;
  readonly length: number;
}

/**
 * The one range of a `Range` header within `size` bytes. Null when the whole file is wanted, which is also how several
 * ranges and other units are answered (RFC 9110 §14.2). `unsatisfiable` when it lies behind the end.
 */
export function byteRange(header: string | undefined, size: number): ByteRange | null | 'unsatisfiable' {
  const match = header === undefined ? null : rangePattern.exec(header);
  if (match === null) return null;
  const [, first, last = '', suffix] = match;
  if (suffix !== undefined) {
    const length = Math.min(Number(suffix), size);
    return length === 0 ? 'unsatisfiable' : { offset: size - length, length };
  }
  const offset = Number(first);
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (last !== '' && Number(last) < offset) return null;
  return offset >= size ? 'unsatisfiable' : { offset, length: end - offset + 1 };
}
