import { type ErrorCode, GatewayError, isGatewayError } from '../../sdk/index.ts';

/** What a path of the agent is about; the same agent code means different things for each. */
export type Subject = 'process' | 'file' | 'tunnel' | 'machine';

const codes = new Map<string, ErrorCode>(
  Object.entries({
    invalid_request: 'invalid_request',
    method_not_allowed: 'internal',
    exists: 'conflict',
    conflict: 'conflict',
    not_a_directory: 'conflict',
    is_a_directory: 'conflict',
    not_empty: 'conflict',
    permission_denied: 'forbidden',
    too_large: 'body_too_large',
    port_closed: 'function_port_closed',
    // The guest's own memory or process limit: the caller's code used it up, and only the caller can free it.
    no_memory: 'conflict',
    too_many_processes: 'conflict',
    disk_full: 'disk_full',
    unsupported: 'invalid_request',
    internal: 'internal',
  } satisfies Record<string, ErrorCode>),
);

const notFound: Readonly<Record<Subject, ErrorCode>> = {
  process: 'process_not_found',
  file: 'file_not_found',
  tunnel: 'function_port_closed',
  machine: 'internal',
};

/** The channel is gone or does not speak our protocol. */
export function unreachable(message: string, cause?: unknown): GatewayError {
  return new GatewayError('guest_unreachable', message, { component: 'guest', cause });
}

/** What an aborted signal means: the caller's own GatewayError, a deadline, or a caller that went away. */
export function fromAbort(signal: AbortSignal): GatewayError {
  const reason: unknown = signal.reason;
  if (isGatewayError(reason)) return reason;
  if (reason instanceof Error && reason.name === 'TimeoutError')
    return unreachable('the guest did not answer in time', reason);
  return new GatewayError('cancelled', 'the caller went away', { component: 'guest', cause: reason });
}

/**
 * The error behind a refusal of the agent. Its text comes from inside the guest: it is cut to 200 printable characters.
 * The agent's own code is kept in `details.extra.reason`.
 */
export function fromRefusal(status: number, body: unknown, subject: Subject): GatewayError {
  const { error, message } = (typeof body === 'object' && body !== null ? body : {}) as Record<
    string,
    unknown
  >;
  const reason = typeof error === 'string' && /^[a-z_]{1,32}$/.test(error) ? error : 'unknown';
  const known = reason === 'not_found' ? notFound[subject] : codes.get(reason);
  const code: ErrorCode = known ?? (status === 503 ? 'conflict' : 'internal');
  const said = typeof message === 'string' ? message.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 200) : '';
  return new GatewayError(code, said === '' ? `the guest answered ${status}` : said, {
    component: 'guest',
    extra: { reason },
  });
}
