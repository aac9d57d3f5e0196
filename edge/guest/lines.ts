import type { ClientHttp2Stream } from 'node:http2';
import { fromAbort, unreachable } from './errors.ts';
import { cancel } from './exchange.ts';

/** Longest line the guest may send: a path of 4 KiB in which every byte is escaped, twice, and the rest of a row. */
const lineBytesMax = 64 * 1024;

/**
 * The lines of a stream, each parsed as JSON and checked. The stream is reset when the reader stops early, when the
 * signal aborts, and when the guest sends anything else.
 * @throws GatewayError `guest_unreachable`, `cancelled`
 */
export async function* jsonLines<T>(
  stream: ClientHttp2Stream,
  check: (value: unknown) => T,
  signal: AbortSignal,
): AsyncGenerator<T> {
  const onAbort = () => cancel(stream);
  signal.addEventListener('abort', onAbort, { once: true });
  let pending: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
      for (let end = pending.indexOf(10); end >= 0; end = pending.indexOf(10)) {
        yield check(JSON.parse(pending.toString('utf8', 0, end)));
        pending = pending.subarray(end + 1);
      }
      if (pending.length > lineBytesMax) throw unreachable('the guest sent an endless line');
    }
    if (signal.aborted) throw fromAbort(signal);
    if (pending.length > 0) throw unreachable('the guest sent half a line');
  } catch (error) {
    if (signal.aborted) throw fromAbort(signal);
    throw error instanceof SyntaxError || (error as { code?: string }).code?.startsWith('ERR_')
      ? unreachable('the guest channel ended during an answer', error)
      : error;
  } finally {
    signal.removeEventListener('abort', onAbort);
    if (!stream.readableEnded) cancel(stream);
  }
}
