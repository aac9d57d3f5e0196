/** Turns whatever can go wrong between a client and a gateway into the one error type. */
import { type ErrorCode, type ErrorDetails, fromProblem, GatewayError, isGatewayError } from '../errors.ts';
import { headerNames } from '../invocation.ts';
import { readText } from './bounded-body.ts';

const maxProblemBytes = 256 * 1024;

/** What a status means when the answer is not a problem document, as from a proxy in front of the gateway. */
const codeOfStatus: Readonly<Record<number, ErrorCode>> = {
  401: 'unauthenticated',
  403: 'forbidden',
  404: 'route_not_found',
  405: 'method_not_allowed',
  413: 'body_too_large',
  429: 'rate_limited',
  502: 'guest_unreachable',
  503: 'host_not_ready',
};

const components = new Set<string>(['gateway', 'edge', 'pool', 'templates', 'guest', 'sdk']);

/** Who made this error: the first half of `x-snapgate-error`. Null when the answer is not one of Snapgate's errors. */
export function errorComponent(headers: Headers): NonNullable<ErrorDetails['component']> | null {
  const value = headers.get(headerNames.error);
  if (value === null) return null;
  const name = value.split('/', 1)[0] ?? '';
  return components.has(name) ? (name as NonNullable<ErrorDetails['component']>) : 'gateway';
}

function retryAfterSeconds(headers: Headers): number | undefined {
  const value = headers.get('retry-after');
  return value !== null && /^[0-9]{1,9}$/.test(value) ? Number(value) : undefined;
}

/** The error an unsuccessful answer carries. Reads (and bounds) its body; never rejects. */
export async function errorOfAnswer(response: Response, what: string): Promise<GatewayError> {
  const retryAfter = retryAfterSeconds(response.headers);
  const text = await readText(response, maxProblemBytes).catch(() => '');
  const body = parseJson(text);
  if (typeof body === 'object' && body !== null && 'error_code' in body) {
    const error = fromProblem(body, errorComponent(response.headers) ?? 'gateway', retryAfter);
    const requestId = response.headers.get(headerNames.requestId);
    // By it the gateway's log tells the rest.
    return requestId === null
      ? error
      : new GatewayError(error.code, error.message, { ...error.details, extra: { requestId } });
  }
  return new GatewayError(
    codeOfStatus[response.status] ?? 'internal',
    `${what} was answered with status ${response.status} and no problem document; does a Snapgate gateway listen there?`,
    { component: 'sdk', ...(retryAfter === undefined ? {} : { retryAfterSeconds: retryAfter }) },
  );
}

/**
 * The error of a request that got no answer, or whose answer broke off. `cancelled` when the caller's own signal
 * fired; otherwise {@link isUnreachable} holds for it.
 */
export function errorOfTransport(cause: unknown, what: string, signal?: AbortSignal): GatewayError {
  if (cause instanceof GatewayError) return cause;
  if (signal?.aborted)
    return new GatewayError('cancelled', `${what} was cancelled`, { component: 'sdk', cause });
  const reason =
    cause instanceof Error && cause.name === 'TimeoutError' ? 'no answer in time' : reasonOf(cause);
  return new GatewayError('host_not_ready', `${what} got no complete answer: ${reason}`, {
    component: 'sdk',
    cause,
  });
}

/** The gateway could not be reached at all, as opposed to an error which it sent. */
export const isUnreachable = (error: unknown): boolean =>
  isGatewayError(error, 'host_not_ready') && error.details.component === 'sdk';

/** `fetch` hides the reason several causes deep, and in an `AggregateError` where a name has several addresses. */
function reasonOf(error: unknown): string {
  let reason = String(error);
  let current = error;
  for (let depth = 0; depth < 5 && current instanceof Error; depth++) {
    const { code } = current as { code?: unknown };
    if (typeof code === 'string') return code;
    reason = current.message;
    current = current instanceof AggregateError ? current.errors[0] : current.cause;
  }
  return reason;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
