/** Turns what goes wrong with a VMM into the one error type, with the VMM's own last lines. */
import { type ErrorCode, GatewayError } from '../../../sdk/index.ts';
import { QmpError } from './qmp-client.ts';

/** What the VMM and its guest said last; each may be empty. */
export interface LastLines {
  readonly stderr: string;
  readonly console: string;
}

/** Both tails under their headings; undefined when nobody said anything. */
function lastLinesText(lines: LastLines): string | undefined {
  const parts = [
    lines.stderr === '' ? '' : `vmm stderr:\n${lines.stderr}`,
    lines.console === '' ? '' : `guest console:\n${lines.console}`,
  ].filter((part) => part !== '');
  return parts.length === 0 ? undefined : parts.join('\n\n');
}

/**
 * Translates any failure of a VMM operation. A `GatewayError` keeps its code and gains the last lines if it has no
 * output; a full disk is `disk_full` whoever noticed it; an abort is `cancelled`, or for a deadline `timeoutCode`.
 *
 * @param what what was being done, such as `start the VMM`
 */
export function toVmmError(
  cause: unknown,
  what: string,
  codes: { readonly failed: ErrorCode; readonly timeout: ErrorCode },
  lines: LastLines,
): GatewayError {
  const output = lastLinesText(lines);
  const details = { component: 'edge', cause, ...(output === undefined ? {} : { output }) } as const;
  if (cause instanceof GatewayError) {
    if (cause.details.output !== undefined || output === undefined) return cause;
    return new GatewayError(cause.code, cause.message, { ...cause.details, output });
  }
  if (errnoOf(cause) === 'ENOSPC' || /no space left on device/i.test(lines.stderr))
    return new GatewayError('disk_full', `could not ${what}: no space left on the device`, details);
  const name = cause instanceof Error ? cause.name : '';
  if (name === 'TimeoutError' || (cause instanceof QmpError && cause.kind === 'timeout'))
    return new GatewayError(codes.timeout, `could not ${what}: it took too long`, details);
  if (name === 'AbortError')
    return new GatewayError('cancelled', `stopped trying to ${what}: the caller went away`, details);
  const reason = cause instanceof QmpError ? `: ${cause.message}` : '';
  return new GatewayError(codes.failed, `could not ${what}${reason}`, details);
}

/** Error number name of a system error, if it is one. */
export function errnoOf(error: unknown): string | undefined {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
  return typeof code === 'string' ? code : undefined;
}
