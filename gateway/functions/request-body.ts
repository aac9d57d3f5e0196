import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { type Clock, GatewayError } from '../../sdk/index.ts';

export interface RequestBodyOptions {
  /** More than this ends the body with `body_too_large`. */
  readonly limitBytes: number;
  /** A longer gap between two chunks, while somebody wants to read, ends it with `request_timeout`. */
  readonly idleMs: number;
  readonly clock: Clock;
  /** Called once, when the first byte is wanted: the moment for `100 Continue`. */
  readonly onWanted: () => void;
}

/**
 * The body of a client's request, handed to an edge. It stands between the two because destroying an `IncomingMessage`
 * closes the client's connection, while an edge which has had enough only means "no more". It reads from the client no
 * faster than the edge reads from it, and errors with `GatewayError`: `body_too_large`, `request_timeout`, `cancelled`.
 * What the edge leaves is the owner's to drain.
 */
export class RequestBody extends Readable {
  /** Bytes received so far. */
  receivedBytes = 0;
  readonly #request: IncomingMessage;
  readonly #options: RequestBodyOptions;
  #isStarted = false;
  #isWanted = false;
  #isWatched = true;
  #lastByteAt = 0;
  #cancelTimer: () => void = () => {};

  constructor(request: IncomingMessage, options: RequestBodyOptions) {
    super({ highWaterMark: request.readableHighWaterMark });
    this.#request = request;
    this.#options = options;
  }

  /** Gaps may be as long as they like from here on. */
  stopIdleWatch(): void {
    this.#cancelTimer();
    this.#isWatched = false;
  }

  override _read(): void {
    this.#isWanted = true;
    this.#lastByteAt = this.#options.clock.monotonic();
    if (this.#isStarted) {
      this.#request.resume();
      return;
    }
    this.#isStarted = true;
    this.#options.onWanted();
    this.#request.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose);
    if (this.#isWatched) this.#watch(this.#options.idleMs);
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#cancelTimer();
    this.#request.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    this.#request.pause();
    callback(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.receivedBytes += chunk.length;
    this.#lastByteAt = this.#options.clock.monotonic();
    if (this.receivedBytes > this.#options.limitBytes) {
      this.destroy(bodyTooLarge(this.#options.limitBytes));
    } else if (!this.push(chunk)) {
      this.#isWanted = false;
      this.#request.pause();
    }
  };

  readonly #onEnd = (): void => {
    this.#cancelTimer();
    this.push(null);
  };

  readonly #onClose = (): void => {
    if (!this.#request.complete) this.destroy(new GatewayError('cancelled', 'the client went away'));
  };

  /** One timer for the whole body, re-armed for the rest of the gap, instead of one per chunk. */
  #watch(delayMs: number): void {
    this.#cancelTimer = this.#options.clock.schedule(delayMs, () => {
      const idleMs = this.#isWanted ? this.#options.clock.monotonic() - this.#lastByteAt : 0;
      const leftMs = this.#options.idleMs - idleMs;
      if (leftMs > 0) this.#watch(leftMs);
      else {
        const message = `no byte of the request body came for ${this.#options.idleMs} ms`;
        this.destroy(
          new GatewayError('request_timeout', message, { extra: { limitMs: this.#options.idleMs } }),
        );
      }
    });
  }
}

/** The 413 of every place that counts a body; names the limit and whose setting it is. */
export const bodyTooLarge = (limitBytes: number): GatewayError =>
  new GatewayError('body_too_large', `the request body is over the limit of ${limitBytes} bytes`, {
    field: 'limits.bodyBytes',
    extra: { limitBytes },
  });
