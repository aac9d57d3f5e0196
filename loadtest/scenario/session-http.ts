import { Pool } from 'undici';
import { headerNames } from '../../sdk/index.ts';
import { isRefusal, type Outcome, type StartLabel, startLabels } from '../record/labels.ts';

/** Most bytes of an answer that a session reads. */
const maxAnswerBytes = 16 * 1024 * 1024;

/** An answer as a session sees it. */
export interface SessionAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly start: StartLabel;
  readonly bytes: Buffer;
  /** The body as JSON; throws {@link RequestFailed} when it is none. */
  json(): unknown;
}

/** A request of a session failed: what it counts as, and why. */
export class RequestFailed extends Error {
  override readonly name = 'RequestFailed';
  readonly outcome: Outcome;
  /** `component/code`. */
  readonly code: string;
  readonly status: number;

  constructor(outcome: Outcome, code: string, status: number, message: string) {
    super(message);
    this.outcome = outcome;
    this.code = code;
    this.status = status;
  }
}

/** HTTP for sessions. Statuses outside `accept` (default: 200–299) reject with {@link RequestFailed}. */
export interface SessionHttp {
  send(request: {
    readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
    readonly path: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly json?: unknown;
    readonly bytes?: Uint8Array;
    readonly accept?: readonly number[];
  }): Promise<SessionAnswer>;
}

/** Connections shared by all sessions of a generator. */
export interface SessionConnections extends AsyncDisposable {
  /** HTTP in the name of one tenant. */
  as(headers: readonly string[]): SessionHttp;
}

/** Opens connections to one origin; `timeoutMs` limits each request. */
export function createSessionConnections(options: {
  readonly origin: string;
  readonly maxConnections: number;
  readonly timeoutMs: number;
}): SessionConnections {
  const pool = new Pool(options.origin, {
    connections: options.maxConnections,
    pipelining: 1,
    allowH2: false,
    headersTimeout: 0,
    bodyTimeout: 0,
    maxResponseSize: maxAnswerBytes,
  });
  return {
    as: (own) => ({
      async send(request) {
        const limit = AbortSignal.timeout(options.timeoutMs);
        const headers = { ...pairs(own), ...request.headers };
        if (request.json !== undefined) headers['content-type'] = 'application/json';
        try {
          const answer = await pool.request({
            method: request.method,
            path: request.path,
            headers,
            body: request.json === undefined ? (request.bytes ?? null) : JSON.stringify(request.json),
            signal: limit,
          });
          const bytes = Buffer.from(await answer.body.arrayBuffer());
          return accepted(request, answer.statusCode, answer.headers, bytes);
        } catch (error) {
          throw error instanceof RequestFailed ? error : transportFailure(error, limit.aborted, request);
        }
      },
    }),
    [Symbol.asyncDispose]: () => pool.destroy(),
  };
}

type Sent = Parameters<SessionHttp['send']>[0];

function accepted(
  request: Sent,
  status: number,
  headers: SessionAnswer['headers'],
  bytes: Buffer,
): SessionAnswer {
  const isAccepted = request.accept?.includes(status) ?? (status >= 200 && status < 300);
  if (!isAccepted) {
    const named = String(headers[headerNames.error] ?? '');
    const code = named === '' ? `function/${status}` : named.slice(0, 80);
    throw new RequestFailed(
      isRefusal(code) ? 'refused' : 'failed',
      code,
      status,
      `${request.method} ${request.path}: ${status} ${bytes.subarray(0, 300).toString('utf8')}`,
    );
  }
  const start = String(headers[headerNames.start] ?? '');
  return {
    status,
    headers,
    start: (startLabels as readonly string[]).includes(start) ? (start as StartLabel) : 'unknown',
    bytes,
    json() {
      try {
        return JSON.parse(bytes.toString('utf8'));
      } catch {
        throw new RequestFailed(
          'failed',
          'harness/not-json',
          status,
          `${request.method} ${request.path}: no JSON`,
        );
      }
    },
  };
}

function transportFailure(error: unknown, isTimeout: boolean, request: Sent): RequestFailed {
  const code = (error as NodeJS.ErrnoException).code;
  return new RequestFailed(
    isTimeout ? 'timeout' : 'failed',
    `transport/${isTimeout ? 'timeout' : typeof code === 'string' ? code.slice(0, 40) : 'error'}`,
    0,
    `${request.method} ${request.path}: ${error instanceof Error ? error.message : String(error)}`,
  );
}

function pairs(flat: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let index = 0; index + 1 < flat.length; index += 2) headers[flat[index]!] = flat[index + 1]!;
  return headers;
}
