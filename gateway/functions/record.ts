/** What is known of one invocation, and the one log line and the metrics made of it when it is over. */
import type { Logger } from 'pino';
import type { InvokeMeta } from '../../edge/client/index.ts';
import { type Clock, errorCodes, type GatewayError, type VersionDigest } from '../../sdk/index.ts';
import * as fields from '../fields.ts';
import type { GatewayMetrics, Outcome } from '../metrics.ts';
import type { Admitted } from './admission.ts';

/** Filled as the invocation goes on. */
export interface InvocationRecord {
  readonly requestId: string;
  readonly method: string;
  readonly target: string;
  readonly peer: string;
  readonly startedAtMs: number;
  headAtMs: number | undefined;
  admitted: Admitted | undefined;
  meta: InvokeMeta | undefined;
  status: number | undefined;
  requestBytes: number;
  responseBytes: number;
  error: GatewayError | undefined;
}

/** Writes the line and counts. Errors of our own are logged as errors, everybody else's as info. */
export function finishRecord(
  deps: { readonly log: Logger; readonly metrics: GatewayMetrics; readonly clock: Clock },
  record: InvocationRecord,
  outcome: Outcome,
): void {
  const { error, meta, admitted } = record;
  const endedAtMs = deps.clock.monotonic();
  const headMs = (record.headAtMs ?? endedAtMs) - record.startedAtMs;
  deps.metrics.invocationFinished({
    template: admitted?.version.template ?? '',
    outcome,
    start: meta?.start,
    headMs,
    requestBytes: record.requestBytes,
    responseBytes: record.responseBytes,
    error: error ?? null,
  });
  const line = {
    ...fields.invocationId(record.requestId),
    ...fields.method(record.method),
    ...fields.target(record.target),
    ...fields.peer(record.peer),
    ...(record.status === undefined ? {} : fields.status(record.status)),
    ...fields.outcome(outcome),
    ...(admitted === undefined ? {} : admittedFields(admitted)),
    ...(meta === undefined ? {} : metaFields(meta)),
    ...fields.headMs(headMs),
    ...fields.durationMs(endedAtMs - record.startedAtMs),
    ...fields.requestBytes(record.requestBytes),
    ...fields.responseBytes(record.responseBytes),
    ...(error === undefined ? {} : fields.failure(error)),
  };
  if (error !== undefined && errorCodes[error.code].blame === 'system')
    deps.log.error(line, 'invocation finished');
  else deps.log.info(line, 'invocation finished');
}

const admittedFields = ({ version, key, session }: Admitted) => ({
  ...fields.templateName(version.template),
  ...fields.templateVersion(version.version),
  ...fields.templateDigest(version.digest as VersionDigest),
  ...(key === null ? {} : fields.keyId(key.id)),
  ...(session === undefined ? {} : fields.sessionOf(session)),
});

const metaFields = (meta: InvokeMeta) => ({
  ...fields.machineId(meta.machine),
  ...fields.startType(meta.start),
  ...fields.queueMs(meta.timing.queueMs),
  ...fields.restoreMs(meta.timing.restoreMs),
  ...fields.execMs(meta.timing.execMs),
});
