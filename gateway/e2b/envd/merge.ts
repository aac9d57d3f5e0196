/** Joins streams of events into one, no faster than its reader takes them. */
import type { Clock } from '../../../sdk/index.ts';

interface Waiting<T> {
  readonly source: AsyncIterator<T>;
  readonly result: IteratorResult<T>;
}

/**
 * Items as they come; `keepAlive()` whenever none came for `keepAliveMs`. Ends when all sources have. A source that fails ends it
 * with its error; whichever way it ends, the others are told to stop.
 */
export async function* merge<T>(
  sources: readonly AsyncIterable<T>[],
  idle: { readonly clock: Clock; readonly keepAliveMs: number; readonly keepAlive: () => T },
): AsyncGenerator<T> {
  const pending = new Map<AsyncIterator<T>, Promise<Waiting<T>>>();
  const ask = (source: AsyncIterator<T>) =>
    pending.set(
      source,
      source.next().then((result) => ({ source, result })),
    );
  for (const source of sources) ask(source[Symbol.asyncIterator]());
  try {
    while (pending.size > 0) {
      const { promise: silence, resolve } = Promise.withResolvers<null>();
      const cancel = idle.clock.schedule(idle.keepAliveMs, () => resolve(null));
      const news = await Promise.race([...pending.values(), silence]).finally(cancel);
      if (news === null) yield idle.keepAlive();
      else if (news.result.done === true) pending.delete(news.source);
      else {
        ask(news.source);
        yield news.result.value;
      }
    }
  } finally {
    for (const [source, result] of pending) {
      // Whatever it still says, nobody listens; and it may be waiting for something that never comes.
      result.catch(() => {});
      source.return?.().then(
        () => {},
        () => {},
      );
    }
  }
}
