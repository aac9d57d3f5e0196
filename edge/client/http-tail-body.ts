import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { GatewayError } from '../../sdk/index.ts';

/** What follows the head in a message. Destroying it does not destroy the connection, on which the answer goes out. */
export class TailBody extends Readable {
  readonly #source: IncomingMessage;
  #rest: Buffer;
  #isStarted = false;

  /** @param rest bytes that were read already */
  constructor(source: IncomingMessage, rest: Buffer = Buffer.alloc(0)) {
    super({ highWaterMark: source.readableHighWaterMark });
    this.#source = source;
    this.#rest = rest;
  }

  override _read(): void {
    if (!this.#isStarted) {
      this.#isStarted = true;
      this.#source.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose);
    }
    const rest = this.#rest;
    this.#rest = Buffer.alloc(0);
    if (rest.length === 0 || this.push(rest)) this.#source.resume();
    if (this.#source.readableEnded) this.push(null);
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#source.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    callback(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (!this.push(chunk)) this.#source.pause();
  };
  readonly #onEnd = (): void => {
    this.push(null);
  };
  readonly #onClose = (): void => {
    if (!this.#source.complete) this.destroy(new GatewayError('cancelled', 'the gateway went away'));
  };
}
