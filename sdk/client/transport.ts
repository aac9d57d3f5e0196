import type { z } from 'zod';
import { GatewayError } from '../errors.ts';
import { errorOfAnswer, errorOfTransport } from './answer-error.ts';
import { type BodySource, readText, toFetchBody } from './bounded-body.ts';
import { readNdjson } from './ndjson.ts';

const maxAnswerBytes = 32 * 1024 * 1024;

export interface TransportOptions {
  /** `http:` or `https:` address of a gateway; a path in it is kept as a prefix. */
  readonly url: string;
  readonly apiKey?: string;
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** For an answer to begin, and for a listing to be complete. Streams may then last. Default 30 000. */
  readonly timeoutMs?: number;
}

/** What the `Headers` constructor takes. */
export type HeadersSource = Headers | Readonly<Record<string, string>> | [string, string][];

export interface Send {
  readonly method: string;
  /** Starts with `/`, already encoded. */
  readonly path: string;
  readonly headers?: HeadersSource;
  readonly body?: BodySource;
  readonly signal?: AbortSignal;
  /** Instead of the transport's own, for work that takes its time. Milliseconds. */
  readonly timeoutMs?: number;
}

/** HTTP towards one gateway: address, key, deadlines, and one way for anything to fail. */
export interface Transport {
  readonly url: string;
  /** The answer as it is, whatever its status. No deadline of its own. */
  raw(send: Send): Promise<Response>;
  /** A successful JSON answer that fits `schema`. */
  json<T>(schema: z.ZodType<T>, send: Send): Promise<T>;
  /** A successful answer whose body does not matter. */
  done(send: Send): Promise<void>;
  /** Lines of a successful NDJSON answer. Nothing is sent before iteration begins; ending it closes the connection. */
  lines<T>(schema: z.ZodType<T>, send: Send): AsyncGenerator<T>;
}

/** @throws GatewayError `invalid_request` for an address that is not http(s), or carries a user, query or fragment */
export function createTransport(options: TransportOptions): Transport {
  const base = parseBase(options.url);
  const doFetch = options.fetch ?? fetch;
  const timeoutMs = options.timeoutMs ?? 30_000;

  const describe = (send: Send) => `${send.method} ${base}${send.path}`;

  async function dispatch(send: Send): Promise<Response> {
    const { method, path, headers, body, signal } = send;
    const sent = new Headers(headers);
    if (options.apiKey !== undefined && !sent.has('authorization')) {
      sent.set('authorization', `Bearer ${options.apiKey}`);
    }
    let bodyFailure: unknown;
    const onFailure = (error: unknown) => {
      bodyFailure = error;
    };
    try {
      return await doFetch(`${base}${path}`, {
        method,
        headers: sent,
        // A redirect would take the key to wherever it points.
        redirect: 'manual',
        ...(body === undefined ? {} : { body: toFetchBody(body, onFailure), duplex: 'half' as const }),
        ...(signal === undefined ? {} : { signal }),
      });
    } catch (error) {
      throw bodyFailure === undefined ? error : unreadableBody(bodyFailure, describe(send));
    }
  }

  async function raw(send: Send): Promise<Response> {
    try {
      return await dispatch(send);
    } catch (cause) {
      throw errorOfTransport(cause, describe(send), send.signal);
    }
  }

  /** Runs `read` on a successful answer; its errors and an answer that breaks off get the same treatment. */
  async function answered<T>(send: Send, read: (response: Response) => Promise<T>): Promise<T> {
    const deadline = AbortSignal.timeout(send.timeoutMs ?? timeoutMs);
    const signal = send.signal === undefined ? deadline : AbortSignal.any([send.signal, deadline]);
    try {
      const response = await dispatch({ ...send, signal });
      if (!response.ok) throw await errorOfAnswer(response, describe(send));
      return await read(response);
    } catch (cause) {
      // Only the caller's own signal makes it a cancellation, not the deadline.
      throw errorOfTransport(cause, describe(send), send.signal);
    }
  }

  async function* lines<T>(schema: z.ZodType<T>, send: Send): AsyncGenerator<T> {
    try {
      const response = await dispatch(send);
      if (!response.ok) throw await errorOfAnswer(response, describe(send));
      if (response.body === null) return;
      for await (const value of readNdjson(response.body)) yield validated(schema, value, describe(send));
    } catch (cause) {
      throw errorOfTransport(cause, describe(send), send.signal);
    }
  }

  return {
    url: base,
    raw,
    json: (schema, send) =>
      answered(send, async (response) => {
        const text = await readText(response, maxAnswerBytes);
        return validated(schema, parseJson(text), describe(send));
      }),
    done: (send) => answered(send, async (response) => void (await response.body?.cancel())),
    lines,
  };
}

function parseBase(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isUsable =
    url !== null &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    `${url.username}${url.password}${url.search}${url.hash}` === '';
  if (!isUsable) {
    throw new GatewayError(
      'invalid_request',
      'the address of the gateway must be a plain http or https URL',
      {
        component: 'sdk',
        field: 'url',
      },
    );
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

const unreadableBody = (cause: unknown, what: string) =>
  cause instanceof GatewayError
    ? cause
    : new GatewayError('invalid_request', `the body for ${what} could not be read`, {
        component: 'sdk',
        cause,
      });

function validated<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const field = result.error.issues[0]?.path.join('.') ?? '';
  throw new GatewayError(
    'internal',
    `the answer to ${what} has an unexpected form; do client and gateway match?`,
    {
      component: 'sdk',
      cause: result.error,
      ...(field === '' ? {} : { field }),
    },
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new GatewayError('internal', 'the answer is not JSON', { component: 'sdk', cause });
  }
}
