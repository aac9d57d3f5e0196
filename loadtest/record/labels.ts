import { startTypes } from '../../sdk/index.ts';

/**
 * How the machine behind a sample came to be: as functions name it, then as sandboxes do, and `unknown` for an answer that
 * names none (refusals, timeouts, servers that are not ours).
 */
export const startLabels = [...startTypes, 'forked', 'resumed', 'unknown'] as const;
export type StartLabel = (typeof startLabels)[number];

/**
 * How a request ended. `ok`: answered by the function below 400. `refused`: admission said no, which under overload is
 * right. `failed`: anything else that is no answer. `timeout`: recorded at the time limit, never dropped.
 */
export const outcomes = ['ok', 'refused', 'failed', 'timeout'] as const;
export type Outcome = (typeof outcomes)[number];

/** Codes with which admission refuses; every other gateway error is a failure. */
const refusalCodes: ReadonlySet<string> = new Set([
  'rate_limited',
  'quota_exceeded',
  'queue_full',
  'queue_timeout',
  'node_at_capacity',
  'version_unavailable',
  'draining',
]);

/** True for the code part of `x-snapgate-error: component/code` when it is a refusal by admission. */
export const isRefusal = (code: string): boolean => refusalCodes.has(code.slice(code.indexOf('/') + 1));
