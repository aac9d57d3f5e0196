import { Readable } from 'node:stream';
import type { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import { FrameReader, type FrameType } from './http-frames.ts';
import { decodeError, protocolError, trailersSchema } from './http-wire.ts';

/** Reads the frames of one answer; `head` settles first, then `body` flows. */
export class FramedAnswer<Head> {
  readonly head: Promise<Head>;
  readonly body: Readable;
  trailers: readonly string[] = [];
  /** The edge reads no more of the request's body. */
  onEnough = (): void => {};
  readonly #resolve: (head: Head) => void;
  readonly #reject: (error: GatewayError) => void;
  readonly #signal: AbortSignal;
  readonly #headSchema: z.ZodType<Head>;
  readonly #onAbort = (): void => this.fail(this.#signal.reason);
  #source: Readable | undefined;
  #isComplete = false;

  /** @param stop ends the whole exchange: nobody wants its answer any more */
  constructor(headSchema: z.ZodType<Head>, signal: AbortSignal, stop: () => void) {
    this.#headSchema = headSchema;
    const { promise, resolve, reject } = Promise.withResolvers<Head>();
    this.head = promise;
    // Whoever waits gets it; a refused upgrade has had its head by other means.
    promise.catch(ignoreError);
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
    this.body = new Readable({
      read: () => void this.#source?.resume(),
      destroy: (error, callback) => {
        signal.removeEventListener('abort', this.#onAbort);
        if (!this.#isComplete) stop();
        callback(error);
      },
    });
    // Errors also reject `head`, and nobody listens to a body that was never handed out.
    this.body.on('error', ignoreError);
    signal.addEventListener('abort', this.#onAbort, { once: true });
    if (signal.aborted) queueMicrotask(this.#onAbort);
  }

  /** @param lost what it means when the frames stop before the last one */
  readFrom(source: Readable, lost: () => GatewayError): void {
    this.#source = source;
    const reader = new FrameReader({
      onJson: (type, value) => this.#onJson(type, value),
      onData: (piece) => {
        if (!this.body.push(piece)) source.pause();
      },
    });
    const onData = (chunk: Buffer) => {
      try {
        reader.push(chunk);
      } catch (thrown) {
        this.fail(thrown instanceof GatewayError ? thrown : protocolError(thrown));
      }
    };
    source
      .on('data', onData)
      .on('error', ignoreError)
      .on('close', () => this.fail(lost()));
  }

  /** Before the head: the call fails with it. After: the body does. Nothing once the answer is complete. */
  fail(error: GatewayError): void {
    if (this.#isComplete) return;
    this.#reject(error);
    this.body.destroy(error);
  }

  #onJson(type: Exclude<FrameType, 'data'>, value: unknown): 'frames' | 'raw' {
    switch (type) {
      case 'enough':
        this.onEnough();
        return 'frames';
      case 'error':
        this.fail(decodeError(value));
        return 'frames';
      case 'trailers':
        this.trailers = trailersSchema.parse(value);
        this.#isComplete = true;
        this.body.push(null);
        return 'frames';
      case 'head':
        this.#resolve(this.#headSchema.parse(value));
        return 'frames';
      case 'end':
        throw protocolError();
    }
  }
}

const ignoreError = (): void => {};
