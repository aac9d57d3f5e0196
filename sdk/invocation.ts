/** Words of the invocation path that every hop and every client shares. */

/**
 * How the machine that answered came to be. `ready`: was restored, primed and waiting. `restored`: state was
 * loaded into a blank VMM for this call. `spawned`: a VMM was started for this call. `reused`: answered before.
 */
export const startTypes = ['ready', 'restored', 'spawned', 'reused'] as const;
export type StartType = (typeof startTypes)[number];

/** Milliseconds each phase took; sent as `server-timing`. */
export interface InvocationTiming {
  readonly queueMs: number;
  readonly restoreMs: number;
  readonly execMs: number;
}

export const headerNames = {
  session: 'x-snapgate-session',
  timeoutMs: 'x-snapgate-timeout-ms',
  start: 'x-snapgate-start',
  machine: 'x-snapgate-machine',
  version: 'x-snapgate-version',
  digest: 'x-snapgate-digest',
  error: 'x-snapgate-error',
  requestId: 'x-request-id',
  timing: 'server-timing',
  /** Request: the same key and body within 24 hours get the same answer, and nothing is done twice. */
  idempotencyKey: 'idempotency-key',
  /** Answer: `true` when it was given before. */
  replayed: 'x-snapgate-replayed',
} as const;
