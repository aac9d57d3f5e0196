/** Errors of the API as problem documents, the same bytes as on the function door. */
import type { Context } from 'hono';
import type { GatewayError } from '../../sdk/index.ts';
import { problemAnswer } from '../problem.ts';

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

/** What middleware leaves for handlers. */
export interface ApiEnv {
  Variables: { requestId: string };
}
