/** How a call that was made under an `Idempotency-Key` ended, in a form that can be stored. */
import { Readable } from 'node:stream';
import type { InvokeMeta, InvokeResponse } from '../../edge/client/index.ts';
import {
  type ErrorDetails,
  fromProblem,
  GatewayError,
  headerNames,
  type ProblemBody,
  toProblem,
} from '../../sdk/index.ts';

/** A function's own answer, or that there was one which is too large or takes too long to be kept. */
export type RecordedAnswer =
  | {
      readonly kind: 'answer';
      readonly status: number;
      readonly rawHeaders: readonly string[];
      /** Base64. */
      readonly body: string;
      readonly trailers: readonly string[];
      readonly meta: InvokeMeta;
    }
  | { readonly kind: 'unkept' };

/** The answer and the version that gave it, or the error after which nobody knows whether the function ran. */
export type KeptCall =
  | (RecordedAnswer & { readonly version: string })
  | { readonly kind: 'failed'; readonly problem: ProblemBody; readonly component: ErrorDetails['component'] };

export const failedCall = (error: GatewayError): KeptCall => ({
  kind: 'failed',
  problem: toProblem(error),
  component: error.details.component ?? 'gateway',
});

/** The answer as the function gave it. */
export function keptAnswer(kept: KeptCall & { readonly kind: 'answer' }): InvokeResponse {
  const { status, rawHeaders, meta, trailers } = kept;
  const body = Readable.from([Buffer.from(kept.body, 'base64')], { objectMode: false });
  return { status, rawHeaders, body, trailers: () => trailers, meta };
}

/** What a repetition is told when there is no answer to give. */
export function keptError(kept: Exclude<KeptCall, { readonly kind: 'answer' }>): GatewayError {
  if (kept.kind === 'failed') return fromProblem(kept.problem, kept.component);
  return new GatewayError(
    'conflict',
    'the call with this Idempotency-Key was made; its answer was too large or too slow to be kept, and the function is not called twice',
    { field: headerNames.idempotencyKey },
  );
}
