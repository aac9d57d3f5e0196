/** The function door: raw requests and upgrades in, answers of machines out. No fetch, no decoding, no buffering. */
import type { InvokeRequest } from '../../edge/client/index.ts';
import { GatewayError, type VersionDigest } from '../../sdk/index.ts';
import { createTokenBuckets } from '../limits/token-buckets.ts';
import { type AdmissionDeps, type Admitted, admit, keepRate, resolve } from './admission.ts';
import { callEdge } from './edge-call.ts';
import { Exchange, type ExchangeDeps, type ExchangeOptions, type Incoming } from './exchange.ts';
import { createIdempotentCalls, type IdempotentCallDeps, idempotencyKeyOf } from './idempotent-call.ts';
import { answerPreflight, isBarePreflight } from './preflight.ts';
import type { RequestBody } from './request-body.ts';
import { functionHeaders } from './request-headers.ts';
import { acceptTunnel, holdSocket, type UpgradeIncoming } from './upgrade.ts';

export interface FunctionDoorDeps extends ExchangeDeps, IdempotentCallDeps, AdmissionDeps {
  readonly isTrustedPeer: (peer: string) => boolean;
}

export interface FunctionDoorOptions extends ExchangeOptions {
  /** Most unfinished invocations, upgraded connections included. */
  readonly inFlight: number;
  /** What an edge may need beyond the function's budget, milliseconds. */
  readonly edgeGraceMs: number;
}

/** What routing found out about a request, besides the route. */
export interface IncomingFacts {
  readonly host: string;
  readonly protocol: 'http' | 'https';
}

export interface FunctionDoor {
  /** Answers a request. Never throws. */
  handle(incoming: Incoming, facts: IncomingFacts): void;
  /** Answers a request that asks for another protocol. Never throws. */
  upgrade(incoming: UpgradeIncoming, facts: IncomingFacts): void;
  /** Unfinished invocations, upgraded connections included. */
  readonly inFlight: number;
  /** Resolves when none is left. */
  whenIdle(): Promise<void>;
}

/** @param deps shared with the rest of the gateway; the door only owns what is in flight */
export function createFunctionDoor(deps: FunctionDoorDeps, options: FunctionDoorOptions): FunctionDoor {
  const answerOnce = createIdempotentCalls(deps);
  const rates = createTokenBuckets(deps);
  let inFlight = 0;
  let idleCallbacks: (() => void)[] = [];
  const onOver = () => {
    inFlight -= 1;
    if (inFlight > 0) return;
    const callbacks = idleCallbacks;
    idleCallbacks = [];
    for (const callback of callbacks) callback();
  };
  const begin = (incoming: Incoming): Exchange => {
    inFlight += 1;
    return new Exchange(deps, options, incoming, onOver);
  };

  const admitInto = (exchange: Exchange, incoming: Incoming): Admitted => {
    const admission = admit(deps, incoming.request, incoming.route);
    exchange.record.admitted = admission;
    if (admission.key !== null) deps.keys.spend(admission.key);
    keepRate(rates, admission.version);
    if (inFlight > options.inFlight) {
      const message = `the gateway has ${options.inFlight} unfinished invocations, its limit`;
      throw new GatewayError('node_at_capacity', message, { extra: { limit: options.inFlight } });
    }
    return admission;
  };

  const requestFor = (
    exchange: Exchange,
    incoming: Incoming,
    facts: IncomingFacts,
    upgrade: string | null,
  ): Omit<InvokeRequest, 'body'> & { readonly body: RequestBody | null; readonly admission: Admitted } => {
    const { request, route } = incoming;
    const admission = admitInto(exchange, incoming);
    const { requestId, peer } = exchange.record;
    return {
      admission,
      requestId,
      digest: admission.version.digest as VersionDigest,
      method: request.method ?? 'GET',
      target: route.target,
      rawHeaders: functionHeaders(request.rawHeaders, {
        host: facts.host,
        protocol: facts.protocol,
        peer,
        isTrusted: deps.isTrustedPeer(peer),
        prefix: route.prefix,
        requestId,
        credentialHeaders: admission.credentialHeaders,
        upgrade,
      }),
      body: upgrade === null ? exchange.takeBody(admission.version.definition.limits.bodyBytes) : null,
      timeoutMs: admission.timeoutMs,
      ...(admission.session === undefined ? {} : { session: admission.session }),
      signal: exchange.signal,
    };
  };

  const invoke = async (incoming: Incoming, facts: IncomingFacts): Promise<void> => {
    const exchange = begin(incoming);
    try {
      if (answersPreflight(incoming)) return answerPreflight(incoming.request, incoming.response);
      const { admission, ...request } = requestFor(exchange, incoming, facts, null);
      const call = { exchange, version: admission.version, request, graceMs: options.edgeGraceMs };
      const key = idempotencyKeyOf(incoming.request);
      if (key !== undefined) return await answerOnce({ ...call, incoming, key });
      const answer = await callEdge(deps, call, (edge) => edge.invoke(request));
      exchange.relay(answer, admission.version.version);
    } catch (thrown) {
      exchange.fail(thrown);
    }
  };

  const upgrade = async (upgrading: UpgradeIncoming, facts: IncomingFacts): Promise<void> => {
    const held = holdSocket(upgrading, deps.clock, options.lingerMs);
    const exchange = begin(held.incoming);
    try {
      const protocol = upgrading.request.headers.upgrade ?? '';
      const { admission, ...request } = requestFor(exchange, held.incoming, facts, protocol);
      const call = { exchange, version: admission.version, request, graceMs: options.edgeGraceMs };
      const answer = await callEdge(deps, call, (edge) => edge.upgrade(request));
      if (answer.isUpgraded) acceptTunnel(exchange, held, answer, admission.version.version);
      else exchange.relay(answer, admission.version.version);
    } catch (thrown) {
      exchange.fail(thrown);
    }
  };

  /** Only a public template's own code answers a preflight that carries no key. */
  const answersPreflight = ({ request, route }: Incoming): boolean => {
    if (!isBarePreflight(request)) return false;
    const version = resolve(deps, route);
    return version instanceof GatewayError || !version.definition.public;
  };

  return {
    get inFlight() {
      return inFlight;
    },
    whenIdle: () =>
      inFlight === 0 ? Promise.resolve() : new Promise((resolve) => idleCallbacks.push(resolve)),
    handle: (incoming, facts) => void invoke(incoming, facts),
    upgrade: (upgrading, facts) => void upgrade(upgrading, facts),
  };
}
