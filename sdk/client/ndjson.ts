import { GatewayError } from '../errors.ts';

/** Longest NDJSON line a client accepts, in UTF-16 units: a publish result carries a whole definition, a log line 64 KiB. */
const maxLineLength = 1024 * 1024;

/**
 * Reads newline-delimited JSON. Whoever stops iterating closes the connection. A last line without a newline counts;
 * empty lines (keep-alives) are skipped.
 * @throws GatewayError `internal` for a line that is too long or no JSON
 */
export async function* readNdjson(
  body: ReadableStream<Uint8Array>,
  maxLength = maxLineLength,
): AsyncGenerator<unknown> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let pending = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      // Only the new part can hold a newline, so a long line costs one scan and not one per chunk.
      const scanFrom = pending.length;
      pending += done ? decoder.decode() : decoder.decode(value, { stream: true });
      let start = 0;
      for (let end = pending.indexOf('\n', scanFrom); end >= 0; end = pending.indexOf('\n', start)) {
        if (end - start > maxLength) throw tooLong(maxLength);
        const line = pending.slice(start, end).trim();
        start = end + 1;
        if (line !== '') yield parseLine(line);
      }
      pending = pending.slice(start);
      if (pending.length > maxLength) throw tooLong(maxLength);
      if (done) break;
    }
    if (pending.trim() !== '') yield parseLine(pending.trim());
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new GatewayError('internal', 'a line of the answer is not JSON', { component: 'sdk', cause });
  }
}

const tooLong = (limit: number) =>
  new GatewayError('internal', `a line of the answer is longer than ${limit} characters`, {
    component: 'sdk',
  });
