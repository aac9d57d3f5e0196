/** Answers that go on: one JSON document a line, and an empty line now and then so that nobody takes silence for death. */
import type { Clock } from '../../sdk/index.ts';

/** Below the idle limits of usual proxies. */
const keepAliveMs = 15_000;
/** A source that says nothing for so long has not failed at once: whoever follows it shall know that it is followed. */
const firstValueMs = 100;
const encoder = new TextEncoder();

export interface NdjsonOptions<T> {
  readonly clock: Clock;
  /** Last line when the source fails, the answer's status being out by then; null breaks the answer off instead. */
  readonly onError: (thrown: unknown) => T | null;
  /** The client closed the connection. */
  readonly onCancel: () => void;
}

/**
 * Streams what `source` yields, as fast as the client reads. The first value is awaited for a moment before there is an answer, so
 * that a source which fails at once rejects and can have its own status. Ends the iteration on every path.
 */
export async function ndjsonResponse<T>(
  source: AsyncIterable<T>,
  options: NdjsonOptions<T>,
): Promise<Response> {
  const iterator = source[Symbol.asyncIterator]();
  let first: Promise<IteratorResult<T>> | undefined = iterator.next();
  await settledWithin(first, firstValueMs, options.clock);
  let cancelKeepAlive = () => {};
  const keepAlive = (controller: ReadableStreamDefaultController<Uint8Array>) => {
    cancelKeepAlive = options.clock.schedule(keepAliveMs, () => {
      controller.enqueue(encoder.encode('\n'));
      keepAlive(controller);
    });
  };
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      keepAlive(controller);
      try {
        const result = await (first ?? iterator.next());
        first = undefined;
        if (result.done) controller.close();
        else controller.enqueue(line(result.value));
      } catch (thrown) {
        const last = options.onError(thrown);
        if (last === null) return controller.error(thrown);
        controller.enqueue(line(last));
        controller.close();
      } finally {
        cancelKeepAlive();
      }
    },
    async cancel() {
      cancelKeepAlive();
      options.onCancel();
      await iterator.return?.();
    },
  });
  return new Response(body, {
    headers: {
      'content-type': 'application/x-ndjson',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    },
  });
}

/** @throws what `work` rejects with, if it does in time */
async function settledWithin(work: Promise<unknown>, ms: number, clock: Clock): Promise<void> {
  const late = Promise.withResolvers<void>();
  const cancel = clock.schedule(ms, late.resolve);
  try {
    await Promise.race([work, late.promise]);
  } finally {
    cancel();
  }
}

const line = (value: unknown): Uint8Array => encoder.encode(`${JSON.stringify(value)}\n`);
