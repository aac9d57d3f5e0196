import type { z } from 'zod';
import { headerNames } from '../invocation.ts';
import { withRetries } from './retry.ts';
import type { Send, Transport } from './transport.ts';

/** Enough for a template to be restored on a busy node, or a large memory to reach the disk. */
const longMs = 300_000;

export interface Calling {
  /** Gives the call up; it then rejects with `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}

export interface KeyedCalling extends Calling {
  /**
   * 1 to 255 visible ASCII characters. The same key and arguments within 24 hours get the same answer. Default: one per call,
   * so that retries of this call are safe.
   */
  readonly idempotencyKey?: string | undefined;
}

/** The ways in which the sandbox API is asked; all of them repeat what may be repeated. */
export interface SandboxCalls {
  readonly transport: Transport;
  get<T>(schema: z.ZodType<T>, path: string, call?: Calling): Promise<T>;
  /** Something that is the same when done twice. */
  put<T>(schema: z.ZodType<T>, path: string, body: unknown, call?: Calling): Promise<T>;
  remove(path: string, call?: Calling): Promise<void>;
  /** Something that must not be done twice. */
  once<T>(schema: z.ZodType<T>, path: string, body: unknown, call?: KeyedCalling): Promise<T>;
  /** Something that must not be repeated at all. */
  post<T>(schema: z.ZodType<T>, path: string, body: unknown, call?: Calling): Promise<T>;
  /** The same without an answer. */
  tell(path: string, body: unknown, call?: Calling): Promise<void>;
}

export function createSandboxCalls(transport: Transport): SandboxCalls {
  const json = (method: string, path: string, body: unknown, call: Calling = {}): Send => ({
    method,
    path,
    timeoutMs: longMs,
    ...(body === undefined
      ? {}
      : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    ...(call.signal === undefined ? {} : { signal: call.signal }),
  });
  return {
    transport,
    get: (schema, path, call) =>
      withRetries(() => transport.json(schema, json('GET', path, undefined, call)), call),
    put: (schema, path, body, call) =>
      withRetries(() => transport.json(schema, json('PUT', path, body, call)), call),
    remove: (path, call) => withRetries(() => transport.done(json('DELETE', path, undefined, call)), call),
    once: (schema, path, body, call = {}) => {
      const send = json('POST', path, body, call);
      const headers = new Headers(send.headers);
      headers.set(headerNames.idempotencyKey, call.idempotencyKey ?? crypto.randomUUID());
      return withRetries(() => transport.json(schema, { ...send, headers }), call);
    },
    post: (schema, path, body, call) => transport.json(schema, json('POST', path, body, call)),
    tell: (path, body, call) => transport.done(json('POST', path, body, call)),
  };
}
