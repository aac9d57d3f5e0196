import type { ClientHttp2Stream } from 'node:http2';
import { Readable } from 'node:stream';
import { fromAbort, unreachable } from './errors.ts';
import { cancel } from './exchange.ts';

/**
 * Passes what a stream receives on to `target`, with back-pressure. Node ends a stream that lost its session or was reset
 * exactly like one that was complete; this tells them apart and destroys `target` with `guest_unreachable`.
 * @returns asks for more; call it from the target's `_read`
 */
export function feed(stream: ClientHttp2Stream, target: Readable): () => void {
  const lose = (cause?: Error) => {
    if (!target.readableEnded && !target.destroyed)
      target.destroy(unreachable('the guest cut the stream off', cause));
  };
  let isComplete = false;
  stream.on('data', (chunk: Buffer) => {
    if (!target.destroyed && !target.push(chunk)) stream.pause();
  });
  stream.on('end', () => {
    // A stream that is already destroyed got no END_STREAM: the `end` is Node's own.
    isComplete = !stream.destroyed && stream.rstCode === 0;
    if (isComplete) target.push(null);
    else lose();
  });
  stream.on('error', lose);
  stream.on('close', () => {
    if (!isComplete) lose();
  });
  // Whoever reads hears of it; a stream that nobody reads any more must not end the process.
  target.on('error', () => {});
  stream.pause();
  return () => stream.resume();
}

/**
 * The body of an answer. Destroying it, or the signal, resets the stream; a body that was cut off is an error, never a
 * short read.
 */
export class AnswerBody extends Readable {
  readonly #stream: ClientHttp2Stream;
  readonly #more: () => void;
  readonly #ignore: () => void;

  constructor(stream: ClientHttp2Stream, signal: AbortSignal) {
    super({ highWaterMark: 64 * 1024 });
    this.#stream = stream;
    this.#more = feed(stream, this);
    const onAbort = () => this.destroy(fromAbort(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    this.#ignore = () => signal.removeEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
  }

  override _read(): void {
    this.#more();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#ignore();
    if (!this.readableEnded) cancel(this.#stream);
    done(error);
  }
}
