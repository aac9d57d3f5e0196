/** Errors of sandboxes in the words of envd's protocols. */
import { Code, ConnectError } from '@connectrpc/connect';
import type { ErrorCode, GatewayError } from '../../../sdk/index.ts';
import { toGatewayError } from '../../errors.ts';

const codes: Partial<Record<ErrorCode, Code>> = {
  invalid_request: Code.InvalidArgument,
  file_not_found: Code.NotFound,
  process_not_found: Code.NotFound,
  conflict: Code.FailedPrecondition,
  forbidden: Code.PermissionDenied,
  unauthenticated: Code.Unauthenticated,
  body_too_large: Code.ResourceExhausted,
  disk_full: Code.ResourceExhausted,
  cancelled: Code.Canceled,
  function_timeout: Code.DeadlineExceeded,
  sandbox_not_found: Code.Unavailable,
  guest_unreachable: Code.Unavailable,
  version_unavailable: Code.Unavailable,
  edge_unreachable: Code.Unavailable,
  edge_lost: Code.Unavailable,
  node_at_capacity: Code.Unavailable,
  draining: Code.Unavailable,
  not_supported_yet: Code.Unimplemented,
};

/** What the agent itself called it, which says more than our code; see `templates/agent/PROTOCOL.md`. */
const reasons: Readonly<Record<string, Code>> = {
  exists: Code.AlreadyExists,
  not_a_directory: Code.InvalidArgument,
  is_a_directory: Code.InvalidArgument,
};

const reasonOf = (error: GatewayError): string => String(error.details.extra?.reason ?? '');

/** Whether a refusal means that no such user is known inside. */
const isUnknownUser = (error: GatewayError): boolean =>
  error.code === 'invalid_request' && /^there is no (?:such )?user/.test(error.message);

/** For RPCs. What is no error of ours stays what it is. */
export function toConnectError(thrown: unknown): ConnectError {
  if (thrown instanceof ConnectError) return thrown;
  const error = toGatewayError(thrown);
  const code = isUnknownUser(error)
    ? Code.Unauthenticated
    : (reasons[reasonOf(error)] ?? codes[error.code] ?? Code.Internal);
  return new ConnectError(error.message, code, undefined, undefined, thrown);
}

/** For plain HTTP: a status, and the text of its body. */
export function toHttpError(thrown: unknown): { readonly status: number; readonly message: string } {
  const error = toGatewayError(thrown);
  const { message } = error;
  if (isUnknownUser(error) || error.code === 'unauthenticated') return { status: 401, message };
  if (reasons[reasonOf(error)] !== undefined) return { status: 400, message };
  switch (error.code) {
    case 'sandbox_not_found':
    case 'guest_unreachable':
      return { status: 502, message };
    // A file that is in the way or of another kind: the caller named the wrong one.
    case 'conflict':
      return { status: 400, message };
    default:
      return { status: error.status, message };
  }
}
