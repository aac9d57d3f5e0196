/** The gateway's one boundary: whatever was thrown becomes a `GatewayError`. */
import { z } from 'zod';
import { GatewayError } from '../sdk/index.ts';

/** Keeps a `GatewayError`; names the offending field of a zod error; everything else is `internal`, its text kept from the wire. */
export function toGatewayError(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  if (thrown instanceof z.ZodError) return invalidInput(thrown);
  if (
    thrown instanceof Error &&
    (thrown.name === 'AbortError' || hasCode(thrown, 'ERR_STREAM_PREMATURE_CLOSE'))
  ) {
    return new GatewayError('cancelled', 'the request was cancelled', { cause: thrown });
  }
  return new GatewayError('internal', 'the gateway failed in a way it did not foresee', { cause: thrown });
}

/** The first issue of a failed validation, with its dotted path. */
export function invalidInput(error: z.ZodError): GatewayError {
  const issue = error.issues[0];
  const field = issue?.path.map(String).join('.') ?? '';
  const where = field === '' ? 'the request' : `"${field}"`;
  return new GatewayError('invalid_request', `${where}: ${issue?.message ?? 'is not valid'}`, {
    cause: error,
    ...(field === '' ? {} : { field }),
  });
}

/** Whether an error carries this `code`, as errors of Node do. */
export const hasCode = (error: unknown, code: string): boolean =>
  error instanceof Error && (error as { code?: unknown }).code === code;
