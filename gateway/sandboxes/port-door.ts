/** Requests and upgrades to ports of sandboxes: the data path of functions, over a tunnel into one machine. */
import type { InvokeMeta, SandboxEdge, SandboxUse, UpgradeResponse } from '../../edge/client/index.ts';
import { GatewayError, type SandboxId, type VersionDigest } from '../../sdk/index.ts';
import type { IncomingFacts } from '../functions/door.ts';
import { Exchange, type ExchangeDeps, type ExchangeOptions, type Incoming } from '../functions/exchange.ts';
import { functionHeaders } from '../functions/request-headers.ts';
import { acceptTunnel, holdSocket, type UpgradeIncoming } from '../functions/upgrade.ts';
import { credentialsOf } from '../keys/credential.ts';
import type { KeyStore } from '../keys/store.ts';
import type { PortAdmission, PortPolicy } from './port-policy.ts';
import type { PortRoute } from './port-route.ts';
import { requestOverTunnel } from './tunnel-request.ts';

export interface PortDoorDeps extends ExchangeDeps {
  readonly sandboxes?: SandboxEdge | undefined;
  readonly keys: Pick<KeyStore, 'verify'>;
  readonly isTrustedPeer: (peer: string) => boolean;
}

export interface PortDoorOptions extends ExchangeOptions {
  /** Most unfinished requests, upgraded connections included. */
  readonly inFlight: number;
}

/** What comes through this door. */
type Routed<T extends Incoming | UpgradeIncoming> = T & {
  readonly route: PortRoute;
  /** Default: keys, and tokens of sandboxes, as in the API. */
  readonly policy?: PortPolicy;
};

export interface PortDoor {
  /** Answers a request. Never throws. */
  handle(incoming: Routed<Incoming>, facts: IncomingFacts): void;
  /** Answers a request that asks for another protocol. Never throws. */
  upgrade(incoming: Routed<UpgradeIncoming>, facts: IncomingFacts): void;
  /** Resolves when nothing is in flight. */
  whenIdle(): Promise<void>;
}

/** @param deps shared with the rest of the gateway; the door only owns what is in flight */
export function createPortDoor(deps: PortDoorDeps, options: PortDoorOptions): PortDoor {
  let inFlight = 0;
  let idleCallbacks: (() => void)[] = [];

  /** An exchange, and what shall be let go when it is over. */
  const begin = (incoming: Incoming) => {
    inFlight += 1;
    const held = new DisposableStack();
    const exchange = new Exchange(deps, options, incoming, () => {
      held.dispose();
      inFlight -= 1;
      if (inFlight > 0) return;
      const callbacks = idleCallbacks;
      idleCallbacks = [];
      for (const callback of callbacks) callback();
    });
    return { exchange, held };
  };

  const ask = async (
    { exchange, held }: ReturnType<typeof begin>,
    { request }: Incoming,
    { route, policy }: Pick<Routed<Incoming>, 'route' | 'policy'>,
    facts: IncomingFacts,
    upgrade: string | null,
  ): Promise<{ readonly answer: UpgradeResponse; readonly version: string }> => {
    const { sandboxes } = deps;
    if (sandboxes === undefined) {
      throw new GatewayError('not_supported_yet', 'this gateway serves functions only, no sandboxes');
    }
    if (inFlight > options.inFlight) {
      const message = `the gateway has ${options.inFlight} unfinished requests to sandboxes, its limit`;
      throw new GatewayError('node_at_capacity', message, { extra: { limit: options.inFlight } });
    }
    const {
      hidden,
      host = facts.host,
      headers = () => [],
    }: PortAdmission = policy === undefined
      ? { hidden: await authenticate(deps.keys, sandboxes, route.sandbox, request.headers) }
      : await policy.admit(route.sandbox, route.port, request.headers);
    const { requestId, peer } = exchange.record;
    const use = await sandboxes.use(route.sandbox, { signal: exchange.signal });
    if (exchange.isOver) {
      use[Symbol.dispose]();
      throw new GatewayError('cancelled', 'the client went away');
    }
    held.use(use);
    const evict = () => exchange.fail(worded({ route, policy }, use.signal.reason));
    use.signal.addEventListener('abort', evict, { once: true });
    held.defer(() => use.signal.removeEventListener('abort', evict));
    const tunnel = await use.tunnel(route.port);
    exchange.markHandedOver();
    const answer = await requestOverTunnel(tunnel, {
      method: request.method ?? 'GET',
      target: route.target,
      rawHeaders: [
        ...functionHeaders(request.rawHeaders, {
          host,
          protocol: facts.protocol,
          peer,
          isTrusted: deps.isTrustedPeer(peer),
          prefix: route.prefix,
          requestId,
          credentialHeaders: hidden,
          upgrade,
        }),
        ...headers(use),
      ],
      body: upgrade === null ? exchange.takeBody(Number.MAX_SAFE_INTEGER) : null,
      isUpgrade: upgrade !== null,
      signal: exchange.signal,
      meta: metaOf(use),
    });
    return { answer, version: use.sandbox.version };
  };

  const handle = async (incoming: Routed<Incoming>, facts: IncomingFacts): Promise<void> => {
    const begun = begin(incoming);
    try {
      const { answer, version } = await ask(begun, incoming, incoming, facts, null);
      if (answer.isUpgraded) {
        answer.socket.destroy();
        throw new GatewayError('function_crashed', 'the server switched protocols unasked');
      }
      begun.exchange.relay(answer, version);
    } catch (thrown) {
      begun.exchange.fail(worded(incoming, thrown));
    }
  };

  const upgrade = async (upgrading: Routed<UpgradeIncoming>, facts: IncomingFacts): Promise<void> => {
    const socket = holdSocket(upgrading, deps.clock, options.lingerMs);
    const begun = begin(socket.incoming);
    try {
      const protocol = upgrading.request.headers.upgrade ?? '';
      const { answer, version } = await ask(begun, socket.incoming, upgrading, facts, protocol);
      if (!answer.isUpgraded) begun.exchange.relay(answer, version);
      else {
        // From here on a failed exchange has no answer to send, so the socket itself must go.
        begun.exchange.signal.addEventListener('abort', () => answer.socket.destroy(), { once: true });
        acceptTunnel(begun.exchange, socket, answer, version);
      }
    } catch (thrown) {
      begun.exchange.fail(worded(upgrading, thrown));
    }
  };

  return {
    handle: (incoming, facts) => void handle(incoming, facts),
    upgrade: (upgrading, facts) => void upgrade(upgrading, facts),
    whenIdle: () =>
      inFlight === 0 ? Promise.resolve() : new Promise((resolve) => idleCallbacks.push(resolve)),
  };
}

const worded = ({ route, policy }: Pick<Routed<Incoming>, 'route' | 'policy'>, thrown: unknown): unknown =>
  policy === undefined ? thrown : policy.refuse(thrown, route.sandbox, route.port);

/** @returns headers that carry a key or token of ours, which the sandbox's own code must not see */
async function authenticate(
  keys: Pick<KeyStore, 'verify'>,
  edge: SandboxEdge,
  id: SandboxId,
  headers: Parameters<typeof credentialsOf>[0],
): Promise<string[]> {
  const credentials = credentialsOf(headers);
  const ours: string[] = [];
  for (const { key, header } of credentials) {
    if (keys.verify(key) !== null || (await edge.isToken(id, key))) ours.push(header);
  }
  if (ours.length > 0) return ours;
  const message =
    credentials.length > 0
      ? 'this is neither an API key nor the token of this sandbox'
      : "send an API key or the sandbox's token";
  throw new GatewayError('unauthenticated', message);
}

function metaOf(use: SandboxUse): InvokeMeta {
  return {
    machine: use.machine,
    digest: use.sandbox.digest as VersionDigest,
    start: 'reused',
    timing: { queueMs: 0, restoreMs: 0, execMs: 0 },
  };
}
