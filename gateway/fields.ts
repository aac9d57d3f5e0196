/** Names of log fields, one function each, so that a field is spelt the same in every line. */
import { type GatewayError, shortDigest, type VersionDigest } from '../sdk/index.ts';

export const invocationId = (id: string) => ({ 'invocation.id': id });
export const templateName = (name: string) => ({ 'template.name': name });
export const templateVersion = (version: string) => ({ 'template.version': version });
export const templateDigest = (digest: VersionDigest) => ({ 'template.digest': shortDigest(digest) });
export const machineId = (id: string) => ({ 'machine.id': id });
export const keyId = (id: string) => ({ 'key.id': id });
export const sessionOf = (session: string) => ({ 'session.id': session });
export const startType = (start: string) => ({ 'invocation.start': start });
export const outcome = (outcome: string) => ({ 'invocation.outcome': outcome });
export const method = (method: string) => ({ 'http.method': method });
export const status = (status: number) => ({ 'http.status': status });
/** Path only: a query may carry secrets. Bounded, since a client chooses its length. */
export const target = (target: string) => ({ 'http.path': target.split('?', 1)[0]?.slice(0, 512) ?? '' });
export const peer = (address: string) => ({ 'net.peer': address });
export const requestBytes = (bytes: number) => ({ request_bytes: bytes });
export const responseBytes = (bytes: number) => ({ response_bytes: bytes });
export const durationMs = (ms: number) => ({ duration_ms: round(ms) });
export const headMs = (ms: number) => ({ head_ms: round(ms) });
export const queueMs = (ms: number) => ({ queue_ms: round(ms) });
export const restoreMs = (ms: number) => ({ restore_ms: round(ms) });
export const execMs = (ms: number) => ({ exec_ms: round(ms) });
export const attempt = (attempt: number) => ({ attempt });
/** Code and component; system errors also carry the cause, which no client ever sees. */
export const failure = (error: GatewayError) => ({
  'error.code': error.code,
  'error.component': error.details.component ?? 'gateway',
  'error.message': error.message,
  ...(error.cause === undefined ? {} : { err: error.cause }),
});

const round = (ms: number) => Math.round(ms * 1000) / 1000;

/** Paths a logger of this process must redact, in case a whole request or environment is ever logged. */
export const redactedPaths = [
  'authorization',
  '*.authorization',
  'cookie',
  '*.cookie',
  '["x-api-key"]',
  '*["x-api-key"]',
  '*["set-cookie"]',
  '*["proxy-authorization"]',
  'env',
  '*.env',
  '*.secrets',
];
