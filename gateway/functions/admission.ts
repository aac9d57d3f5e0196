/** Everything that can refuse an invocation before an edge hears of it. */
import type { IncomingMessage } from 'node:http';
import { GatewayError, headerNames, isGatewayError } from '../../sdk/index.ts';
import type { RegisteredVersion, TemplateRegistry } from '../../templates/index.ts';
import { credentialsOf } from '../keys/credential.ts';
import type { KeyIdentity, KeyStore } from '../keys/store.ts';
import { rateOf, type TokenBuckets } from '../limits/token-buckets.ts';
import type { FunctionRoute } from './route.ts';

/** An invocation that may go on. */
export interface Admitted {
  readonly version: RegisteredVersion;
  /** Null for a public template called without a key. */
  readonly key: KeyIdentity | null;
  /** Headers which carry a Snapgate key and must not reach the function, whether it was needed or not. */
  readonly credentialHeaders: readonly string[];
  readonly session: string | undefined;
  readonly timeoutMs: number;
}

export interface AdmissionDeps {
  readonly registry: Pick<TemplateRegistry, 'resolve'>;
  readonly keys: Pick<KeyStore, 'verify' | 'spend'>;
  /** Uniform in [0, 1): draws the version of a weighted alias. */
  readonly random: () => number;
}

const sessionPattern = /^[A-Za-z0-9._~-]{1,128}$/;
const timeoutPattern = /^[1-9][0-9]{0,8}$/;

/**
 * Resolves the version, authenticates, and reads the `x-snapgate-*` request headers, in this order of refusals: 401, 404, 400.
 * Without a valid key a template that does not exist and one that is not public look the same.
 * @throws GatewayError `unauthenticated`, `template_not_found`, `version_not_found`, `invalid_request`
 */
export function admit(deps: AdmissionDeps, request: IncomingMessage, route: FunctionRoute): Admitted {
  const version = resolve(deps, route);
  const isPublic = !(version instanceof GatewayError) && version.definition.public;
  const { key, credentialHeaders } = authenticate(deps.keys, request, isPublic);
  if (version instanceof GatewayError) throw version;
  const { invocationMs } = version.definition.ttl;
  return {
    version,
    key,
    credentialHeaders,
    session: sessionOf(request),
    timeoutMs: Math.min(invocationMs, timeoutOf(request) ?? invocationMs),
  };
}

/**
 * The template's own rate, whoever calls and whichever version answers.
 * @throws GatewayError `rate_limited`
 */
export function keepRate(rates: TokenBuckets, { template, definition }: RegisteredVersion): void {
  const { ratePerSecond } = definition.admission;
  if (ratePerSecond === null) return;
  const taken = rates.take(template, rateOf(ratePerSecond));
  if (taken.isTaken) return;
  throw new GatewayError('rate_limited', `${template} may be called ${ratePerSecond} times a second`, {
    retryAfterSeconds: taken.retryAfterSeconds,
    extra: { limit: ratePerSecond, knob: 'admission.ratePerSecond' },
  });
}

/** The version a route names, or why there is none: who may know that is decided later. */
export function resolve(
  deps: Pick<AdmissionDeps, 'registry' | 'random'>,
  route: FunctionRoute,
): RegisteredVersion | GatewayError {
  try {
    return deps.registry.resolve(route.template, route.ref, deps.random);
  } catch (error) {
    if (isGatewayError(error, 'template_not_found', 'version_not_found')) return error;
    throw error;
  }
}

function authenticate(
  keys: Pick<KeyStore, 'verify'>,
  request: IncomingMessage,
  isPublic: boolean,
): Pick<Admitted, 'key' | 'credentialHeaders'> {
  const credentials = credentialsOf(request.headers);
  let first: KeyIdentity | null = null;
  const credentialHeaders: string[] = [];
  for (const { key, header } of credentials) {
    const identity = keys.verify(key);
    if (identity === null) continue;
    first ??= identity;
    credentialHeaders.push(header);
  }
  // Whatever else a caller of a public template sends in these headers belongs to the function.
  if (first !== null || isPublic) return { key: first, credentialHeaders };
  const message =
    credentials.length > 0
      ? 'the API key is not valid'
      : 'no public template has this name; send an API key to reach the others';
  throw new GatewayError('unauthenticated', message);
}

function sessionOf(request: IncomingMessage): string | undefined {
  const session = request.headers[headerNames.session];
  if (session === undefined) return undefined;
  if (typeof session === 'string' && sessionPattern.test(session)) return session;
  throw invalidHeader(headerNames.session, '1 to 128 of A-Z, a-z, 0-9, ".", "_", "~" and "-"');
}

function timeoutOf(request: IncomingMessage): number | undefined {
  const timeout = request.headers[headerNames.timeoutMs];
  if (timeout === undefined) return undefined;
  if (typeof timeout === 'string' && timeoutPattern.test(timeout)) return Number(timeout);
  throw invalidHeader(headerNames.timeoutMs, 'a whole number of milliseconds, at least 1');
}

const invalidHeader = (name: string, expected: string) =>
  new GatewayError('invalid_request', `header "${name}" must be ${expected}`, { field: name });
