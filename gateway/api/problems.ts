/** Errors of the API as problem documents, the same bytes as on the function door. */
import type { Context } from 'hono';
import { HTTPException } from 'hono/http-exception';
import { GatewayError } from '../../sdk/index.ts';
import { toGatewayError } from '../errors.ts';
import { problemAnswer } from '../problem.ts';
import type { ApiEnv } from './router.ts';

/** A `Response` with the problem document of an error. */
export function problemResponse(context: Context<ApiEnv>, error: GatewayError, allow?: string): Response {
  const requestId = context.get('requestId');
  const isCrossOrigin = context.req.header('origin') !== undefined;
  const answer = problemAnswer(error, { requestId, allow, isCrossOrigin });
  const headers = new Headers();
  for (let at = 0; at + 1 < answer.rawHeaders.length; at += 2) {
    headers.append(answer.rawHeaders[at]!, answer.rawHeaders[at + 1]!);
  }
  return new Response(answer.body, { status: answer.status, headers });
}

/** {@link toGatewayError}, and what Hono itself throws: bodies that are no JSON. */
export function toApiError(thrown: unknown): GatewayError {
  if (!(thrown instanceof HTTPException)) return toGatewayError(thrown);
  return thrown.status < 500
    ? new GatewayError('invalid_request', thrown.message, { cause: thrown })
    : new GatewayError('internal', 'the gateway failed in a way it did not foresee', { cause: thrown });
}
