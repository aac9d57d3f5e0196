/** Events as a reader wants them: history from a number on, then whatever comes. */
import type { SandboxEvent, SandboxId } from '../../sdk/index.ts';
import type { SandboxStore } from './store.ts';

/**
 * Reads from the store, so that a slow reader costs no memory and misses nothing. Ends after the history without `follow`,
 * else when the signal aborts.
 */
export async function* readEvents(
  store: SandboxStore,
  options: {
    readonly since: number;
    readonly follow: boolean;
    readonly sandbox?: SandboxId;
    readonly signal: AbortSignal;
  },
): AsyncGenerator<SandboxEvent> {
  const { follow, sandbox, signal } = options;
  let since = options.since;
  let news = Promise.withResolvers<void>();
  const wake = () => news.resolve();
  const unwatch = store.watch(wake);
  signal.addEventListener('abort', wake, { once: true });
  try {
    while (!signal.aborted) {
      news = Promise.withResolvers<void>();
      const events = store.events(since, sandbox);
      for (const event of events) {
        yield event;
        since = event.sequence;
      }
      if (events.length > 0) continue;
      if (!follow) return;
      // What came while the last ones were read has woken the old promise, and is found by reading again.
      if (!signal.aborted) await news.promise;
    }
  } finally {
    unwatch();
    signal.removeEventListener('abort', wake);
  }
}
