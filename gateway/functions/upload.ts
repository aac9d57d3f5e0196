import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../sdk/index.ts';
import { announcedLength, announcesBody, type LingerOptions } from '../respond.ts';
import { type Drain, drainRequest } from './drain.ts';
import { bodyTooLarge, RequestBody } from './request-body.ts';

export interface UploadOptions extends LingerOptions {
  readonly clock: Clock;
  /** Longest gap between two pieces of a body, until the answer begins, milliseconds. */
  readonly uploadIdleMs: number;
  /** The client waits for `100 Continue` before it sends. */
  readonly expectsContinue: boolean;
}

/** The sending half of an invocation: hands the body out, and gets rid of what the edge leaves of it. */
export class Upload {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #options: UploadOptions;
  #body: RequestBody | null = null;
  #drain: Drain | undefined;
  #isAbandoned = false;
  #owesContinue: boolean;

  constructor(request: IncomingMessage, response: ServerResponse, options: UploadOptions) {
    this.#request = request;
    this.#response = response;
    this.#options = options;
    this.#owesContinue = options.expectsContinue;
  }

  /** The client still waits for `100 Continue`, so the connection can't tell where the next request begins. */
  get owesContinue(): boolean {
    return this.#owesContinue;
  }

  /** Nobody has taken anything of the body, so the request can be given to another edge. */
  get isUntouched(): boolean {
    return this.#body === null || !(this.#body.readableDidRead || this.#body.destroyed);
  }

  get receivedBytes(): number {
    return this.#body?.receivedBytes ?? 0;
  }

  /**
   * The body for the edge; null when the request announced none.
   * @param onError called with a `GatewayError` when it breaks off
   * @throws GatewayError `body_too_large` when its announced length is over the limit
   */
  take(limitBytes: number, onError: (error: unknown) => void): RequestBody | null {
    if (!announcesBody(this.#request)) return null;
    if ((announcedLength(this.#request) ?? 0) > limitBytes) throw bodyTooLarge(limitBytes);
    const { uploadIdleMs: idleMs, clock } = this.#options;
    this.#body = new RequestBody(this.#request, { limitBytes, idleMs, clock, onWanted: this.#sendContinue });
    return this.#body.on('error', onError).on('close', this.#onBodyClose);
  }

  /** The answer has begun: from here on a client may think as long as it likes about what it sends. */
  answerBegun(): void {
    this.#body?.stopIdleWatch();
  }

  /** The answer is complete: nobody needs the rest. */
  answerEnded(): void {
    this.#body?.destroy();
    this.#drain?.finishWithin();
  }

  /** The invocation failed; whoever tells the client also sees to the rest of the body. */
  abandon(): void {
    this.#isAbandoned = true;
    this.#body?.destroy();
  }

  readonly #sendContinue = (): void => {
    if (!this.#owesContinue || this.#response.headersSent) return;
    this.#owesContinue = false;
    this.#response.writeContinue();
  };

  /** The edge has had enough. A client that only reads once it has sent everything must not get stuck. */
  readonly #onBodyClose = (): void => {
    const [request, response] = [this.#request, this.#response];
    if (this.#isAbandoned || request.complete) return;
    this.#drain = drainRequest(request, this.#options);
    if (response.writableEnded) this.#drain.finishWithin();
    const closeIncomplete = () => request.complete || request.socket.destroy();
    void this.#drain.done.then(() => {
      if (response.writableFinished) closeIncomplete();
      else response.once('finish', closeIncomplete);
    });
  };
}
