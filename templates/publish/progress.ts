/** Carries events from a running build to whoever watches it, bounded in both directions. */
import type { Clock } from '../../sdk/index.ts';
import type { BuildEvent } from './events.ts';
import { escapeOutput, tailOf } from './output-text.ts';

/** Output of one build that is forwarded, characters; a watcher that never reads makes us hold this much. */
const maxOutputLength = 1024 * 1024;
/** Output kept for the error of a failed build, characters. */
const maxTailLength = 16 * 1024;

/** What the steps of a build report to. */
export interface Progress {
  /** Runs `work` as a task: `started`, then `done` or `failed` with its duration. Its output goes to this task. */
  task<T>(id: string, title: string, work: () => Promise<T>): Promise<T>;
  skip(id: string, title: string): void;
  /** Output of a build tool or the guest, as it came. */
  output(text: string): void;
  /** The last output of the task that runs or ran last, escaped, for an error. */
  tail(): string;
}

/** A queue of events with one producer and one consumer. */
export class BuildProgress implements Progress {
  readonly #clock: Clock;
  readonly #events: BuildEvent[] = [];
  #current = 'build';
  #forwarded = 0;
  #tail = '';
  #wake: (() => void) | undefined;
  #isClosed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async task<T>(id: string, title: string, work: () => Promise<T>): Promise<T> {
    const startedAt = this.#clock.monotonic();
    const outer = this.#current;
    const end = (state: 'done' | 'failed') =>
      this.push({ type: 'task', id, title, state, ms: Math.round(this.#clock.monotonic() - startedAt) });
    this.#current = id;
    this.#tail = '';
    this.push({ type: 'task', id, title, state: 'started' });
    try {
      const result = await work();
      end('done');
      return result;
    } catch (error) {
      end('failed');
      throw error;
    } finally {
      this.#current = outer;
    }
  }

  skip(id: string, title: string): void {
    this.push({ type: 'task', id, title, state: 'skipped' });
  }

  output(text: string): void {
    const escaped = escapeOutput(text);
    this.#tail = tailOf(this.#tail + escaped, maxTailLength);
    const room = maxOutputLength - this.#forwarded;
    if (room <= 0 || escaped === '') return;
    this.#forwarded += escaped.length;
    const isCut = escaped.length >= room;
    const forwarded = isCut
      ? `${escaped.slice(0, room)}\n… further output of this build is not shown\n`
      : escaped;
    this.push({ type: 'output', id: this.#current, text: forwarded });
  }

  tail(): string {
    return this.#tail;
  }

  push(event: BuildEvent): void {
    this.#events.push(event);
    this.#wake?.();
  }

  /** No more events will come. */
  close(): void {
    this.#isClosed = true;
    this.#wake?.();
  }

  /** Ends after {@link close} once everything was taken. One consumer only. */
  async *events(): AsyncGenerator<BuildEvent, void> {
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) yield event;
      else if (this.#isClosed) return;
      else {
        const woken = Promise.withResolvers<void>();
        this.#wake = woken.resolve;
        await woken.promise;
        this.#wake = undefined;
      }
    }
  }
}

/**
 * Runs `work` and yields what it reports. Ending the iteration early aborts the signal given to `work`; either way the
 * iteration ends only after `work` did, so nothing of it goes on unseen. Rejects with what `work` rejected with.
 */
export async function* reported(
  clock: Clock,
  signal: AbortSignal,
  work: (progress: BuildProgress, signal: AbortSignal) => Promise<void>,
): AsyncGenerator<BuildEvent, void> {
  const progress = new BuildProgress(clock);
  const left = new AbortController();
  const outcome = work(progress, AbortSignal.any([signal, left.signal])).then(
    () => undefined,
    (error: unknown) => ({ error }),
  );
  void outcome.then(() => progress.close());
  try {
    yield* progress.events();
  } finally {
    left.abort();
    await outcome;
  }
  const failure = await outcome;
  if (failure !== undefined) throw failure.error;
}
