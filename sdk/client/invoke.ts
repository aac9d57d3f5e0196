import { GatewayError } from '../errors.ts';
import { headerNames, type InvocationTiming, type StartType, startTypes } from '../invocation.ts';
import { errorComponent, errorOfAnswer } from './answer-error.ts';
import { type BodySource, isRepeatable } from './bounded-body.ts';
import { withRetries } from './retry.ts';
import type { HeadersSource, Transport } from './transport.ts';

export interface InvokeCall {
  /** Path and query as the function shall see them. Default `/`. */
  readonly path?: string;
  /** Default `GET`, or `POST` when there is a body. */
  readonly method?: string;
  readonly headers?: HeadersSource;
  readonly body?: BodySource;
  /** Calls with the same session are answered by the same machine while it lives. */
  readonly session?: string;
  /** Budget of the function's own time, milliseconds; the template's `ttl.invocationMs` still holds. */
  readonly timeoutMs?: number;
  /**
   * 1 to 255 visible ASCII characters: within 24 hours the same key, path and body (at most 1 MiB) get the same answer and the
   * function runs once. The call is then repeated when its answer is lost, unless the body is a stream.
   */
  readonly idempotencyKey?: string;
  readonly signal?: AbortSignal;
}

/** How the answer came to be, from the answer's headers. */
export interface InvocationStart {
  readonly type: StartType;
  readonly machine: string;
  readonly version: string;
  readonly digest: string | null;
  readonly timing: InvocationTiming;
}

export interface InvokeAnswer {
  /** The function's own answer, whatever its status. The caller reads or cancels its body. */
  readonly response: Response;
  /** Null when the answer names none. */
  readonly start: InvocationStart | null;
}

const referencePattern = /^[a-z0-9-]{1,63}(@[a-z0-9-]{1,63})?$/;

/**
 * Calls a template (`name`, `name@version` or `name@alias`).
 * @throws GatewayError for every error which Snapgate made; a function's own error status is an answer
 */
export async function invoke(
  transport: Transport,
  template: string,
  call: InvokeCall = {},
): Promise<InvokeAnswer> {
  const headers = new Headers(call.headers);
  if (call.session !== undefined) headers.set(headerNames.session, call.session);
  if (call.timeoutMs !== undefined) headers.set(headerNames.timeoutMs, String(call.timeoutMs));
  const method = call.method ?? (call.body === undefined ? 'GET' : 'POST');
  const path = functionPath(transport.url, template, call.path ?? '/');
  const send = async (): Promise<InvokeAnswer> => {
    const response = await transport.raw({
      method,
      path,
      headers,
      ...(call.body === undefined ? {} : { body: call.body }),
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    });
    if (errorComponent(response.headers) !== null) {
      throw await errorOfAnswer(response, `${method} ${transport.url}${path}`);
    }
    return { response, start: startOf(response.headers) };
  };
  if (call.idempotencyKey === undefined) return send();
  headers.set(headerNames.idempotencyKey, call.idempotencyKey);
  return call.body === undefined || isRepeatable(call.body) ? withRetries(send, call) : send();
}

/**
 * `fetch` resolves `..` before it sends, so that a path could leave the function and reach the admin API with the
 * caller's key: such a path is refused.
 */
function functionPath(base: string, template: string, path: string): string {
  if (!referencePattern.test(template)) {
    throw new GatewayError('invalid_request', 'a template is named NAME, NAME@VERSION or NAME@ALIAS', {
      component: 'sdk',
      field: 'template',
    });
  }
  const prefix = `/fn/${template}`;
  const full = `${prefix}${path.startsWith('/') ? '' : '/'}${path}`;
  const resolved = new URL(`${base}${full}`);
  if (!resolved.pathname.startsWith(`${new URL(base).pathname.replace(/\/$/, '')}${prefix}/`)) {
    throw new GatewayError('invalid_request', 'the path must not lead out of the function', {
      component: 'sdk',
      field: 'path',
    });
  }
  return full;
}

/** Start type, machine, version and timing which an answer of the function door names. */
function startOf(headers: Headers): InvocationStart | null {
  const type = startTypes.find((known) => known === headers.get(headerNames.start));
  const machine = headers.get(headerNames.machine);
  const version = headers.get(headerNames.version);
  if (type === undefined || machine === null || version === null) return null;
  return {
    type,
    machine,
    version,
    digest: headers.get(headerNames.digest),
    timing: timingOf(headers.get(headerNames.timing) ?? ''),
  };
}

/** A function may add metrics of its own; ours come first and the first of a name counts. */
function timingOf(serverTiming: string): InvocationTiming {
  const duration = (name: string): number => {
    const match = new RegExp(`(?:^|,)\\s*${name};(?:[^,]*;)?dur=([0-9]+(?:\\.[0-9]+)?)`).exec(serverTiming);
    return match === null ? 0 : Number(match[1]);
  };
  return { queueMs: duration('queue'), restoreMs: duration('restore'), execMs: duration('exec') };
}
