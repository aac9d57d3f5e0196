/**
 * The closed set of error codes, and the one table that says what each of them means on the wire.
 * Callers match on `code`; nobody parses messages.
 */

interface CodeFacts {
  /** HTTP status; 502 is reserved for "guest unreachable, sandbox gone", which E2B's SDK depends on. */
  readonly status: number;
  /** The request was certainly not executed, or executing it twice is harmless. */
  readonly retryable: boolean;
  /** Whose fault it is: the caller's, the function's (template author), or ours. */
  readonly blame: 'caller' | 'function' | 'system';
  /** What the reader can do about it; shown by the CLI under the message. */
  readonly remediation: string;
}

export const errorCodes = {
  invalid_request: {
    status: 400,
    retryable: false,
    blame: 'caller',
    remediation: 'Correct the named field and send the request again.',
  },
  invalid_definition: {
    status: 400,
    retryable: false,
    blame: 'caller',
    remediation:
      'Correct the named field of template.json; `snapgate templates schema` prints what is accepted.',
  },
  not_supported_yet: {
    status: 400,
    retryable: false,
    blame: 'caller',
    remediation:
      'Remove the named field; this release does not act on it, so it is refused rather than ignored.',
  },
  unauthenticated: {
    status: 401,
    retryable: false,
    blame: 'caller',
    remediation:
      'Send `Authorization: Bearer <key>` or `X-API-KEY: <key>`; `snapgate keys create` makes a key.',
  },
  forbidden: {
    status: 403,
    retryable: false,
    blame: 'caller',
    remediation: 'Use a key that may do this; `snapgate keys list` shows what each key may do.',
  },
  route_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: 'Check the path; `/openapi.json` lists the routes.',
  },
  template_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: '`snapgate templates list` shows what is published; `snapgate publish DIR` publishes one.',
  },
  version_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: '`snapgate templates show NAME` lists versions and aliases.',
  },
  machine_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: '`snapgate ps` lists the machines of this node.',
  },
  sandbox_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: '`snapgate sandbox ls` lists sandboxes; this one ended or never was.',
  },
  key_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: '`snapgate keys list` shows the ids of the keys.',
  },
  process_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: 'The process ended and its record expired, or the id is wrong.',
  },
  file_not_found: {
    status: 404,
    retryable: false,
    blame: 'caller',
    remediation: 'Check the path inside the guest.',
  },
  method_not_allowed: {
    status: 405,
    retryable: false,
    blame: 'caller',
    remediation: 'Use one of the methods in the Allow header.',
  },
  request_timeout: {
    status: 408,
    retryable: true,
    blame: 'caller',
    remediation: 'Send the head and the body without long gaps; the request was never completed.',
  },
  conflict: {
    status: 409,
    retryable: false,
    blame: 'caller',
    remediation: 'Look at the current state and decide again.',
  },
  body_too_large: {
    status: 413,
    retryable: false,
    blame: 'caller',
    remediation: 'Send less, or raise `limits.bodyBytes` of the template.',
  },
  build_failed: {
    status: 422,
    retryable: false,
    blame: 'function',
    remediation: "Read the guest's output above; what served before still serves.",
  },
  rate_limited: {
    status: 429,
    retryable: true,
    blame: 'caller',
    remediation: 'Wait for Retry-After, or raise `admission.ratePerSecond`.',
  },
  quota_exceeded: {
    status: 429,
    retryable: false,
    blame: 'caller',
    remediation: 'Wait for the quota window to pass, or raise the quota of the key.',
  },
  queue_full: {
    status: 429,
    retryable: true,
    blame: 'caller',
    remediation: 'Wait for Retry-After, or raise `admission.queue.depth` or `pool.max`.',
  },
  headers_too_large: {
    status: 431,
    retryable: false,
    blame: 'caller',
    remediation: 'Send fewer or shorter headers.',
  },
  cancelled: {
    status: 499,
    retryable: true,
    blame: 'caller',
    remediation: 'The caller went away before the answer; send the request again if it still matters.',
  },
  internal: {
    status: 500,
    retryable: false,
    blame: 'system',
    remediation:
      'This is a defect of Snapgate; the log of the gateway has the cause under the same request id.',
  },
  edge_lost: {
    status: 500,
    retryable: false,
    blame: 'system',
    remediation:
      'The node went away before it answered, so the request may have been executed; check before sending it again.',
  },
  snapshot_corrupt: {
    status: 500,
    retryable: false,
    blame: 'system',
    remediation: 'The version is rebuilt by itself; check the disk if this happens again.',
  },
  vmm_failed: {
    status: 500,
    retryable: true,
    blame: 'system',
    remediation: "Read the VMM's own last lines in the error; `snapgate doctor` checks what the host needs.",
  },
  guest_unreachable: {
    status: 502,
    retryable: true,
    blame: 'system',
    remediation: 'The machine was replaced; send the request again.',
  },
  function_crashed: {
    status: 502,
    retryable: false,
    blame: 'function',
    remediation: '`snapgate logs NAME` shows what the function printed before it ended.',
  },
  function_port_closed: {
    status: 502,
    retryable: false,
    blame: 'function',
    remediation: 'Nothing listens on the port of the template; check `start.port` and `snapgate logs NAME`.',
  },
  restore_failed: {
    status: 503,
    retryable: true,
    blame: 'system',
    remediation: '`snapgate logs NAME --console` shows the guest; `snapgate doctor` checks the host.',
  },
  version_unavailable: {
    status: 503,
    retryable: true,
    blame: 'system',
    remediation: 'The version is being rebuilt; `snapgate templates show NAME` says why and how far it is.',
  },
  node_at_capacity: {
    status: 503,
    retryable: true,
    blame: 'system',
    remediation: 'Wait for Retry-After, add a node, or raise the budget of the node.',
  },
  edge_unreachable: {
    status: 503,
    retryable: true,
    blame: 'system',
    remediation:
      'The node could not be reached and did not get the request; `snapgate doctor` checks the host.',
  },
  draining: {
    status: 503,
    retryable: true,
    blame: 'system',
    remediation: 'The node is stopping; send the request again, another one will answer.',
  },
  host_not_ready: {
    status: 503,
    retryable: false,
    blame: 'system',
    remediation: '`snapgate doctor` says what this host lacks and prints the command which fixes it.',
  },
  queue_timeout: {
    status: 504,
    retryable: true,
    blame: 'system',
    remediation:
      'Raise `admission.queue.timeoutMs` or `pool.max`; the request was never handed to a function.',
  },
  restore_timeout: {
    status: 504,
    retryable: true,
    blame: 'system',
    remediation:
      '`snapgate logs NAME --console` shows the guest; the request was never handed to a function.',
  },
  function_timeout: {
    status: 504,
    retryable: false,
    blame: 'function',
    remediation: 'Raise `ttl.invocationMs` or make the function faster; its machine was stopped.',
  },
  disk_full: {
    status: 507,
    retryable: false,
    blame: 'system',
    remediation: 'Free space in the data directory, then try again; nothing half-done was kept.',
  },
} as const satisfies Record<string, CodeFacts>;

export type ErrorCode = keyof typeof errorCodes;

export interface ErrorDetails {
  /** Which part speaks: goes to `x-snapgate-error: <component>/<code>`. Default `gateway`. */
  readonly component?: 'gateway' | 'edge' | 'pool' | 'templates' | 'guest' | 'sdk';
  /** For the log only; never on the wire. */
  readonly cause?: unknown;
  /** Whole seconds; sent as `Retry-After`. */
  readonly retryAfterSeconds?: number;
  /** Dotted path of the offending field, for bad input. */
  readonly field?: string;
  /** Last lines of the guest, the VMM or the build: shown to the template's author. Bounded by whoever fills it. */
  readonly output?: string;
  /** Extra members of the problem document, such as `limit` and `used`. */
  readonly extra?: Readonly<Record<string, string | number | boolean>>;
}

/** The one error type that crosses folders. `message` is safe to show; `cause` is not. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.details = details;
  }

  get status(): number {
    return errorCodes[this.code].status;
  }
  get isRetryable(): boolean {
    return errorCodes[this.code].retryable;
  }
  get remediation(): string {
    return errorCodes[this.code].remediation;
  }
}

export const isGatewayError = (error: unknown, ...codes: ErrorCode[]): error is GatewayError =>
  error instanceof GatewayError && (codes.length === 0 || codes.includes(error.code));

/** RFC 9457 members plus E2B's `code`, `message` and `error_code`, so that both kinds of client can read it. */
export interface ProblemBody {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: number;
  readonly message: string;
  readonly error_code: ErrorCode;
  readonly remediation: string;
  readonly field?: string;
  readonly output?: string;
  readonly [extra: string]: string | number | boolean | undefined;
}

/** The problem document of an error; the same on every door. */
export function toProblem(error: GatewayError): ProblemBody {
  return {
    type: `urn:snapgate:error:${error.code}`,
    title: error.code.replaceAll('_', ' '),
    status: error.status,
    detail: error.message,
    code: error.status,
    message: error.message,
    error_code: error.code,
    remediation: error.remediation,
    ...(error.details.field === undefined ? {} : { field: error.details.field }),
    ...(error.details.output === undefined ? {} : { output: error.details.output }),
    ...error.details.extra,
  };
}

/** Rebuilds an error from a problem document, on the client side of a hop. Unknown codes become `internal`. */
export function fromProblem(
  body: unknown,
  component: ErrorDetails['component'],
  retryAfterSeconds?: number,
): GatewayError {
  const problem = (typeof body === 'object' && body !== null ? body : {}) as Partial<ProblemBody>;
  const code =
    typeof problem.error_code === 'string' && Object.hasOwn(errorCodes, problem.error_code)
      ? problem.error_code
      : 'internal';
  return new GatewayError(
    code,
    typeof problem.detail === 'string' ? problem.detail : 'the answer was not a problem document',
    {
      ...(component === undefined ? {} : { component }),
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      ...(typeof problem.field === 'string' ? { field: problem.field } : {}),
      ...(typeof problem.output === 'string' ? { output: problem.output } : {}),
    },
  );
}
