import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import type { Exchange } from '../driver/exchange.ts';

/** Raw lines that may wait for the disk; beyond, lines are dropped and counted rather than memory filled. */
const maxBufferedBytes = 32 * 1024 * 1024;

/** Every sample as a line of JSON. */
export interface RawSink extends AsyncDisposable {
  write(exchange: Exchange): void;
  /** Lines that the disk was too slow for. */
  readonly dropped: number;
}

/** Opens (and replaces) an NDJSON file. Rejects when it can't be opened; `dispose` flushes and closes. */
export async function openRawSink(path: string, templates: readonly string[]): Promise<RawSink> {
  const stream = createWriteStream(path, { highWaterMark: 1024 * 1024 });
  await once(stream, 'open');
  let dropped = 0;
  let failure: Error | null = null;
  stream.on('error', (error) => {
    failure = error;
  });
  return {
    get dropped() {
      return dropped;
    },
    write(exchange) {
      if (failure !== null || stream.writableLength > maxBufferedBytes) {
        dropped += 1;
        return;
      }
      stream.write(`${JSON.stringify(rawLine(exchange, templates))}\n`);
    },
    async [Symbol.asyncDispose]() {
      stream.end();
      await finished(stream).catch((error: Error) => {
        failure ??= error;
      });
      if (failure !== null) throw failure;
    },
  };
}

/** Fields of a raw line: instants in milliseconds from the start of the schedule, durations in milliseconds. */
function rawLine(exchange: Exchange, templates: readonly string[]) {
  const some = (ms: number) => (Number.isNaN(ms) ? null : Math.round(ms * 1000) / 1000);
  return {
    seq: exchange.sequence,
    template: templates[exchange.target] ?? null,
    intendedMs: some(exchange.intendedMs),
    sentMs: some(exchange.sentMs),
    firstByteMs: some(exchange.firstByteMs),
    endedMs: some(exchange.endedMs),
    outcome: exchange.outcome,
    status: exchange.status,
    error: exchange.errorCode || null,
    start: exchange.start,
    machine: exchange.machine || null,
    queueMs: some(exchange.queueMs),
    restoreMs: some(exchange.restoreMs),
    execMs: some(exchange.execMs),
    bytes: exchange.bodyBytes,
  };
}
