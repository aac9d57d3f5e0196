import { Readable } from 'node:stream';
import type { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import { FrameReader, type FrameType } from './http-frames.ts';
import { decodeError, protocolError, responseHeadSchema, trailersSchema } from './http-wire.ts';

type ResponseHead = z.output<typeof responseHeadSchema>;

/** Reads the frames of one answer; `head` settles first, then `body` flows. */
export class FramedAnswer {
  readonly head: Promise<ResponseHead>;
  readonly body: Readable;
  trailers: readonly string[] = [];
  /** The edge reads no more of the request's body. */
  onEnough = (): void => {};
  readonly #resolve: (head: ResponseHead) => void;
  readonly #reject: (error: GatewayError) => void;
  readonly #signal: AbortSignal;
  readonly #onAbort = (): void => this.fail(this.#signal.reason);
  #source: Readable | undefined;
  #isComplete = false;

  /** @param stop ends the whole exchange: nobody wants its answer any more */
  constructor(signal: AbortSignal, stop: () => void) {
    const { promise, resolve, reject } = Promise.withResolvers<ResponseHead>();
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
        this.#resolve(responseHeadSchema.parse(value));
        return 'frames';
      case 'end':
        throw protocolError();
    }
  }
}

const ignoreError = (): void => {};
