import { GatewayError } from '../errors.ts';

type FetchBody = NonNullable<RequestInit['body']>;

/** Anything a request body can be made of. A Node `Readable` is an `AsyncIterable` of bytes. */
export type BodySource = string | Uint8Array | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** The same bytes can be sent again. */
export const isRepeatable = (source: BodySource): source is string | Uint8Array | Blob =>
  typeof source === 'string' || source instanceof Uint8Array || source instanceof Blob;

/**
 * Text of an answer, at most `maxBytes` of it.
 * @throws GatewayError `internal` when there is more; the rest is not read and the connection is closed
 */
export async function readText(response: Response, maxBytes: number): Promise<string> {
  if (response.body === null) return '';
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return text + decoder.decode();
      bytes += value.byteLength;
      if (bytes > maxBytes) {
        throw new GatewayError('internal', `the answer is larger than ${maxBytes} bytes`, {
          component: 'sdk',
        });
      }
      text += decoder.decode(value, { stream: true });
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/**
 * What `fetch` takes for a body; a stream is pulled only as fast as the connection accepts it. `onFailure` is told when
 * reading the source fails, because `fetch` reports that as if the connection had.
 */
export function toFetchBody(source: BodySource, onFailure: (error: unknown) => void): FetchBody {
  if (isRepeatable(source)) return source as FetchBody;
  return source instanceof ReadableStream ? source : streamOf(source, onFailure);
}

// `ReadableStream.from` would do, but browsers do not all have it.
function streamOf(
  source: AsyncIterable<Uint8Array>,
  onFailure: (error: unknown) => void,
): ReadableStream<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        onFailure(error);
        throw error;
      }
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}
