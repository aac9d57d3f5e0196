import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import type { InvokeMeta, InvokeResponse } from '../../edge/client/index.ts';
import { type Clock, GatewayError } from '../../sdk/index.ts';
import type { ConnectionWatch } from '../connections.ts';
import { toGatewayError } from '../errors.ts';
import type { GatewayMetrics, Outcome } from '../metrics.ts';
import { requestIdOf } from '../request-id.ts';
import { type LingerOptions, sendProblem } from '../respond.ts';
import { peerAddress } from './forwarded.ts';
import { finishRecord, type InvocationRecord } from './record.ts';
import { relay } from './relay.ts';
import type { RequestBody } from './request-body.ts';
import type { FunctionRoute } from './route.ts';
import { Upload } from './upload.ts';

/** Collaborators that all exchanges of a gateway share. */
export interface ExchangeDeps {
  readonly log: Logger;
  readonly metrics: GatewayMetrics;
  readonly clock: Clock;
  readonly connections: ConnectionWatch;
  /** Whether clients shall be sent away after their current request. */
  readonly isDraining: () => boolean;
}

export interface ExchangeOptions extends LingerOptions {
  readonly uploadIdleMs: number;
}

/** One request of a client, and its answer. */
export interface Incoming {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly route: FunctionRoute;
  /** The client waits for `100 Continue` before it sends its body. */
  readonly expectsContinue: boolean;
  /** The connection carries no further request, as after an upgrade that did not come about. */
  readonly mustClose?: boolean;
}

/**
 * The life of one invocation on the client's side: it hands out the request body, relays the answer or tells the error,
 * notices when the client leaves, and is over exactly once, with one log line.
 */
export class Exchange {
  readonly record: InvocationRecord;
  readonly #deps: ExchangeDeps;
  readonly #options: ExchangeOptions;
  readonly #incoming: Incoming;
  readonly #abort = new AbortController();
  readonly #stopWatching: () => void;
  readonly #onOver: () => void;
  readonly #upload: Upload;
  #answer: InvokeResponse | undefined;
  #isHandedOver = false;
  #isOver = false;

  /** @param onOver called once, when nothing of the invocation is left */
  constructor(deps: ExchangeDeps, options: ExchangeOptions, incoming: Incoming, onOver: () => void) {
    this.#deps = deps;
    this.#options = options;
    this.#incoming = incoming;
    this.#onOver = onOver;
    const { request, response, route, expectsContinue } = incoming;
    this.#upload = new Upload(request, response, { ...options, clock: deps.clock, expectsContinue });
    this.record = {
      requestId: requestIdOf(request.headers['x-request-id']),
      method: request.method ?? 'GET',
      target: route.target,
      peer: peerAddress(request.socket.remoteAddress),
      startedAtMs: deps.clock.monotonic(),
      headAtMs: undefined,
      admitted: undefined,
      meta: undefined,
      status: undefined,
      requestBytes: 0,
      responseBytes: 0,
      error: undefined,
    };
    deps.metrics.invocationStarted();
    request.on('error', ignoreError);
    response.on('error', ignoreError).on('close', this.#onResponseClose);
    this.#stopWatching = deps.connections.onClose(request.socket, this.#onClientGone);
  }

  /** Fires when the client is gone or the invocation failed; its reason is a `GatewayError`. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Headers of the client's request, as it sent them. */
  get requestHeaders(): readonly string[] {
    return this.#incoming.request.rawHeaders;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The request can be given to another edge: nobody has taken anything of its body. */
  get isReplayable(): boolean {
    return !this.#isOver && this.#upload.isUntouched;
  }

  /**
   * The request's body for the edge; null when it announced none.
   * @throws GatewayError `body_too_large` when its announced length is over the limit
   */
  takeBody(limitBytes: number): RequestBody | null {
    return this.#upload.take(limitBytes, this.fail);
  }

  /** From now on a failure may have had effects in a function. */
  markHandedOver(): void {
    this.#isHandedOver = true;
  }

  /** Sends the function's answer to the client. @param options.isReplay it was given before */
  relay(answer: InvokeResponse, version: string, options: { readonly isReplay?: boolean } = {}): void {
    this.record.meta = answer.meta;
    if (this.#isOver || this.signal.aborted) {
      answer.body.on('error', ignoreError).destroy();
      return;
    }
    this.#answer = answer;
    relay(answer, this.#incoming.response, {
      requestId: this.record.requestId,
      version,
      isReplay: options.isReplay === true,
      method: this.record.method,
      mustClose: this.#mustClose(),
      onHead: () => {
        this.noteHead(answer.status);
        this.#upload.answerBegun();
      },
      onBytes: (count) => {
        this.record.responseBytes += count;
      },
      onEnd: () => this.#upload.answerEnded(),
      onError: this.fail,
    });
  }

  /** The client's socket now belongs to a tunnel, whose owner calls {@link finish}. */
  beginTunnel(meta: InvokeMeta): void {
    this.record.meta = meta;
    this.noteHead(101);
    this.#stopWatching();
    this.#incoming.response.off('close', this.#onResponseClose);
  }

  /** Notes the moment and the status of the answer's head. */
  noteHead(status: number): void {
    this.record.status = status;
    this.record.headAtMs = this.#deps.clock.monotonic();
  }

  /**
   * Ends the invocation with an error: as a problem document while that is possible, by breaking the connection off once
   * the answer has begun, so that half an answer never passes for a whole one.
   */
  readonly fail = (thrown: unknown): void => {
    if (this.#isOver || this.record.error !== undefined) return;
    const error = toGatewayError(thrown);
    const { request, response } = this.#incoming;
    this.record.error = error;
    this.#abort.abort(error);
    this.#answer?.body.destroy();
    this.#upload.abandon();
    if (response.headersSent || response.destroyed) {
      breakOff(request, response);
      return;
    }
    this.noteHead(error.status);
    const { admitted, requestId } = this.record;
    sendProblem(
      request,
      response,
      error,
      { requestId, template: admitted?.version.template, version: admitted?.version.version },
      {
        ...this.#options,
        clock: this.#deps.clock,
        mustClose: this.#mustClose(),
        owesContinue: this.#upload.owesContinue,
      },
    );
  };

  readonly #onClientGone = (): void => {
    if (this.#incoming.response.writableFinished) return;
    this.record.error ??= new GatewayError('cancelled', 'the client went away');
    this.#abort.abort(this.record.error);
    this.#answer?.body.destroy();
    this.#upload.abandon();
    this.finish();
  };

  readonly #onResponseClose = (): void => {
    if (this.#incoming.response.writableFinished) this.finish();
    else this.#onClientGone();
  };

  #mustClose(): boolean {
    return this.#upload.owesContinue || this.#incoming.mustClose === true || this.#deps.isDraining();
  }

  /** The invocation is over. Idempotent. */
  finish(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stopWatching();
    // A tunnel has counted its own.
    if (this.record.status !== 101) this.record.requestBytes = this.#upload.receivedBytes;
    finishRecord(this.#deps, this.record, this.#outcome());
    this.#onOver();
  }

  #outcome(): Outcome {
    const { error } = this.record;
    if (error === undefined) return 'answered';
    if (error.code === 'cancelled') return 'cancelled';
    if (this.#answer !== undefined && this.#incoming.response.headersSent) return 'cut';
    return this.#isHandedOver && error.status !== 429 && error.status !== 503 ? 'failed' : 'refused';
  }
}

/**
 * To a HTTP/1.0 client a plain close may be the regular end of an answer, so only a reset tells it that something is
 * missing. HTTP/1.1 answers have a length or chunks, and a plain close keeps what is already under way.
 */
function breakOff(request: IncomingMessage, response: ServerResponse): void {
  const { socket } = response;
  if (socket !== null && request.httpVersionMinor === 0 && !('encrypted' in socket)) socket.resetAndDestroy();
  else response.destroy();
}

const ignoreError = (): void => {};
