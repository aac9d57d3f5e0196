import { Readable } from 'node:stream';

/**
 * A request body that touches its source only once somebody reads, and leaves it alone when it is destroyed before
 * that. undici destroys a body when connecting fails; with this in between the request can still go to another machine.
 */
export class HeldBody extends Readable {
  readonly #source: Readable;
  #isStarted = false;

  constructor(source: Readable) {
    super({ highWaterMark: 64 * 1024 });
    this.#source = source;
  }

  /** True once a byte may have left: the request can't be sent again. */
  get isStarted(): boolean {
    return this.#isStarted;
  }

  override _read(): void {
    if (this.#isStarted) {
      this.#source.resume();
      return;
    }
    this.#isStarted = true;
    this.#source
      .on('data', (chunk: Buffer) => {
        if (!this.push(chunk)) this.#source.pause();
      })
      .on('end', () => this.push(null))
      .on('error', (error) => this.destroy(error))
      .on('close', () => {
        if (!this.#source.readableEnded) this.destroy(new Error('the request body ended early'));
      });
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    if (this.#isStarted) this.#source.destroy();
    callback(error);
  }
}
