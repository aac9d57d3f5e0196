import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import { headerNames } from '../../sdk/index.ts';
import { isRefusal, type Outcome, type StartLabel, startLabels } from '../record/labels.ts';
import { readServerTiming, type ServerPhases } from './server-timing.ts';

/** Most of a response body that is kept for checks; the rest is counted and dropped. */
const maxKeptBodyBytes = 64 * 1024;

/** What an exchange is told about before it is sent. Instants are milliseconds from the start of the schedule. */
export interface ExchangeStart {
  readonly sequence: number;
  readonly target: number;
  /** When the schedule wanted it sent. */
  readonly intendedMs: number;
  /** When it was handed to the HTTP client. */
  readonly sentMs: number;
  /** Whether checks want to read the body. */
  readonly keepsBody: boolean;
}

/**
 * One request and what came back: the undici handler and the sample in one object, so that a request costs one
 * allocation. Settles exactly once, by answer, error or time limit, and then calls `onSettled`.
 */
export class Exchange implements Dispatcher.DispatchHandler, ServerPhases {
  readonly sequence: number;
  readonly target: number;
  readonly intendedMs: number;
  readonly sentMs: number;
  firstByteMs = Number.NaN;
  endedMs = Number.NaN;
  /** HTTP status; 0 when there was no answer. */
  status = 0;
  outcome: Outcome = 'failed';
  /** `component/code` of whoever failed it; empty when it is ok. */
  errorCode = '';
  start: StartLabel = 'unknown';
  machine = '';
  digest = '';
  retryAfter = '';
  /** Whether the answer says that it was given before. */
  isReplayed = false;
  queueMs = Number.NaN;
  restoreMs = Number.NaN;
  execMs = Number.NaN;
  bodyBytes = 0;
  /** The set of whoever watches the time limit; the exchange leaves it when it settles. */
  watchers: Set<Exchange> | null = null;

  private readonly keepsBody: boolean;
  private readonly now: () => number;
  private readonly onSettled: (exchange: Exchange) => void;
  private chunks: Buffer[] | null = null;
  private controller: Dispatcher.DispatchController | null = null;
  private isSettled = false;

  constructor(start: ExchangeStart, now: () => number, onSettled: (exchange: Exchange) => void) {
    this.sequence = start.sequence;
    this.target = start.target;
    this.intendedMs = start.intendedMs;
    this.sentMs = start.sentMs;
    this.keepsBody = start.keepsBody;
    this.now = now;
    this.onSettled = onSettled;
  }

  /** From the intended instant to the last byte: what a caller who arrived on time has waited. */
  get latencyMs(): number {
    return this.endedMs - this.intendedMs;
  }
  /** From the actual send to the last byte. */
  get serviceMs(): number {
    return this.endedMs - this.sentMs;
  }
  /** The kept part of the body as text. */
  get bodyText(): string {
    return this.chunks === null ? '' : Buffer.concat(this.chunks).toString('utf8');
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller;
    if (this.isSettled) controller.abort(new Error('settled before it was sent'));
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    if (this.isSettled || status < 200) return;
    this.firstByteMs = this.now();
    this.status = status;
    this.readHeaders(headers);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.bodyBytes += chunk.length;
    if (!this.keepsBody || this.bodyBytes > maxKeptBodyBytes) return;
    this.chunks ??= [];
    this.chunks.push(chunk);
  }

  onResponseEnd(): void {
    if (this.errorCode !== '') this.settle(isRefusal(this.errorCode) ? 'refused' : 'failed');
    else if (this.status >= 400) this.settle('failed', `function/${this.status}`);
    else this.settle('ok');
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const code = (error as NodeJS.ErrnoException).code;
    this.settle('failed', `transport/${typeof code === 'string' ? code.slice(0, 40) : error.name}`);
  }

  /** Ends it at the time limit. The figure recorded is the limit or, when the sweep was late, a little more. */
  expire(): void {
    if (!this.settle('timeout', 'transport/timeout')) return;
    this.controller?.abort(new Error('time limit reached'));
  }

  private settle(outcome: Outcome, errorCode = this.errorCode): boolean {
    if (this.isSettled) return false;
    this.isSettled = true;
    this.watchers?.delete(this);
    this.endedMs = this.now();
    this.outcome = outcome;
    this.errorCode = errorCode;
    this.onSettled(this);
    return true;
  }

  private readHeaders(headers: IncomingHttpHeaders): void {
    const start = text(headers[headerNames.start]);
    if (start !== '' && (startLabels as readonly string[]).includes(start)) this.start = start as StartLabel;
    this.machine = text(headers[headerNames.machine]);
    this.digest = text(headers[headerNames.digest]);
    this.errorCode = text(headers[headerNames.error]).slice(0, 80);
    this.retryAfter = text(headers['retry-after']);
    this.isReplayed = headers[headerNames.replayed] === 'true';
    const timing = headers[headerNames.timing];
    if (timing !== undefined) readServerTiming(text(timing), this);
  }
}

const text = (value: string | string[] | undefined): string =>
  value === undefined ? '' : typeof value === 'string' ? value : value.join(', ');
