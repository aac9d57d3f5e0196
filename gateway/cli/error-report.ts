import { inspect } from 'node:util';
import { errorCodes, GatewayError, isUnreachable, visibleText } from '../../sdk/index.ts';

const unreachableRemedy =
  'Start one with `snapgate up` (`npm start` in a checkout), or name the right one with --url or SNAPGATE_URL.';

/** Anything a command may reject with, as the one error type. */
export function toCliError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const errno = error as NodeJS.ErrnoException;
  const message = error instanceof Error ? error.message : String(error);
  if (errno.code === 'ENOSPC') return new GatewayError('disk_full', message, { cause: error });
  // A path that the user named: the message of the system says which and why.
  if (
    errno.code === 'ENOENT' ||
    errno.code === 'EACCES' ||
    errno.code === 'ENOTDIR' ||
    errno.code === 'EISDIR'
  ) {
    return new GatewayError('invalid_request', message, { cause: error });
  }
  return new GatewayError('internal', message, { cause: error });
}

/**
 * An error as the reader sees it: code and message, the offending field, the last output of guest or VMM, with
 * `isVerbose` the cause, and what can be done about it. Nothing in it can move the cursor.
 */
export function errorReport(error: GatewayError, options: { readonly isVerbose: boolean }): string {
  const { field, output, retryAfterSeconds, cause, component, extra } = error.details;
  const lines = [`error[${error.code}]: ${visibleText(error.message)}`];
  if (field !== undefined) lines.push(`  field: ${visibleText(field, { lines: 'one' })}`);
  if (retryAfterSeconds !== undefined) lines.push(`  retry after: ${retryAfterSeconds} s`);
  if (extra?.requestId !== undefined && (options.isVerbose || errorCodes[error.code].blame === 'system')) {
    lines.push(`  request id: ${visibleText(String(extra.requestId), { lines: 'one' })}`);
  }
  if (options.isVerbose) {
    if (component !== undefined) lines.push(`  component: ${component}`);
    if (cause !== undefined) lines.push(...quoted('cause', inspect(cause, { depth: 4 })));
  } else if (error.code === 'internal' && cause !== undefined) {
    lines.push('  (--verbose shows the cause)');
  }
  if (output !== undefined && output.trim() !== '') lines.push(...quoted('output', output));
  lines.push(`→ ${isUnreachable(error) ? unreachableRemedy : error.remediation}`);
  return `${lines.join('\n')}\n`;
}

function quoted(title: string, text: string): string[] {
  const lines = visibleText(text.replaceAll('\r\n', '\n')).trimEnd().split('\n');
  return [`  ${title}:`, ...lines.map((line) => `  | ${line}`)];
}
