/** The one translator from whatever went wrong in a build to the error its author sees. */
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import { tailOf } from './output-text.ts';

const maxOutputLength = 16 * 1024;

/** A step of the template failed; `output` is what the guest said. */
export const buildFailed = (message: string, output?: string, cause?: unknown): GatewayError =>
  new GatewayError('build_failed', message, {
    component: 'templates',
    cause,
    ...(output === undefined || output === '' ? {} : { output: tailOf(output, maxOutputLength) }),
  });

/** True when this error or one it was caused by says that the host's disk or its quota is used up. */
function isDiskFull(error: unknown): boolean {
  let current: unknown = error;
  for (let depth = 0; depth < 8 && typeof current === 'object' && current !== null; depth += 1) {
    if (isGatewayError(current, 'disk_full')) return true;
    const { code } = current as { code?: unknown };
    if (code === 'ENOSPC' || code === 'EDQUOT') return true;
    current =
      current instanceof Error
        ? (current.cause ?? (current as Partial<GatewayError>).details?.cause)
        : undefined;
  }
  return false;
}

// On the wire these speak of an invocation; during a build they are a failure of the build.
const guestCodes = [
  'guest_unreachable',
  'function_crashed',
  'function_port_closed',
  'function_timeout',
  'restore_timeout',
  'process_not_found',
  'file_not_found',
] as const;

/**
 * @param output the guest's last words, added when the error has none of its own
 * @param signal of the caller: when it aborted, that is the reason
 */
export function toBuildError(error: unknown, output: string, signal: AbortSignal): GatewayError {
  if (isDiskFull(error)) {
    return isGatewayError(error, 'disk_full')
      ? error
      : new GatewayError('disk_full', 'the disk ran full while the version was built', {
          component: 'templates',
          cause: error,
        });
  }
  if (isGatewayError(error, ...guestCodes)) {
    return buildFailed(error.message, error.details.output ?? output, error);
  }
  if (isGatewayError(error)) {
    if (error.details.output !== undefined || output === '' || error.details.field !== undefined)
      return error;
    return new GatewayError(error.code, error.message, {
      ...error.details,
      output: tailOf(output, maxOutputLength),
    });
  }
  if (signal.aborted) {
    return new GatewayError('cancelled', 'the build was cancelled', { component: 'templates', cause: error });
  }
  const { name } = error as Partial<Error>;
  if (name === 'TimeoutError')
    return buildFailed('a step of the build did not finish in time', output, error);
  return new GatewayError('internal', 'the build failed for a reason of our own', {
    component: 'templates',
    cause: error,
    ...(output === '' ? {} : { output: tailOf(output, maxOutputLength) }),
  });
}
