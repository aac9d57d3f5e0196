/** `X-Forwarded-*` and `Forwarded` (RFC 7239): what a function may believe about the client. */
import { BlockList, isIPv6 } from 'node:net';

/** What the gateway itself saw of a request. */
export interface ForwardedFacts {
  /** Address of the peer; `unknown` on a unix socket. */
  readonly peer: string;
  readonly isTrusted: boolean;
  readonly protocol: 'http' | 'https';
  /** Host header as the client sent it. */
  readonly host: string;
  /** What routing took off the path; empty on host routes. */
  readonly prefix: string;
}

/** Values the client sent; only believed when {@link ForwardedFacts.isTrusted}. */
export interface ForwardedClaims {
  for: string[];
  forwarded: string[];
  host: string | undefined;
  protocol: string | undefined;
  port: string | undefined;
  prefix: string | undefined;
}

/** Whether a header name belongs to this family, so that a client's own is dropped. `name` is lower-case. */
export const isForwardingHeader = (name: string): boolean =>
  name.startsWith('x-forwarded-') || name === 'forwarded' || name === 'x-real-ip';

/** Makes the check for trusted peers from addresses and ranges. An IPv4-mapped peer counts as IPv4. */
export function createTrustCheck(proxies: readonly string[]): (peer: string) => boolean {
  if (proxies.length === 0) return () => false;
  const list = new BlockList();
  for (const proxy of proxies) {
    const [address = '', bits] = proxy.split('/');
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return (peer) => peer !== 'unknown' && list.check(peer, isIPv6(peer) ? 'ipv6' : 'ipv4');
}

/** Plain form of a socket's address. */
export function peerAddress(remoteAddress: string | undefined): string {
  if (remoteAddress === undefined || remoteAddress === '') return 'unknown';
  return remoteAddress.startsWith('::ffff:') ? remoteAddress.slice(7) : remoteAddress;
}

/** Notes what the client claims. Called for each header for which {@link isForwardingHeader} holds. */
export function noteClaim(claims: ForwardedClaims, name: string, value: string): void {
  if (name === 'x-forwarded-for') claims.for.push(value);
  else if (name === 'forwarded') claims.forwarded.push(value);
  else if (name === 'x-forwarded-host') claims.host ??= value;
  else if (name === 'x-forwarded-proto') claims.protocol ??= value;
  else if (name === 'x-forwarded-port') claims.port ??= value;
  else if (name === 'x-forwarded-prefix') claims.prefix ??= value;
}

/** Appends this hop's headers: a trusted proxy's chain is continued, anybody else's was dropped. */
export function pushForwarded(
  headers: string[],
  facts: ForwardedFacts,
  claims: ForwardedClaims | null,
): void {
  const { peer, protocol, host } = facts;
  const forChain = claims === null || claims.for.length === 0 ? peer : `${claims.for.join(', ')}, ${peer}`;
  const element = `for=${forwardedNode(peer)};host=${quoted(host)};proto=${protocol}`;
  const chain = claims === null || claims.forwarded.length === 0 ? '' : `${claims.forwarded.join(', ')}, `;
  headers.push(
    'x-forwarded-for',
    forChain,
    'x-forwarded-host',
    claims?.host ?? host,
    'x-forwarded-proto',
    claims?.protocol ?? protocol,
    'x-forwarded-port',
    claims?.port ?? portOf(host, protocol),
    'forwarded',
    chain + element,
  );
  const prefix = (claims?.prefix ?? '') + facts.prefix;
  if (prefix !== '') headers.push('x-forwarded-prefix', prefix);
}

function portOf(host: string, protocol: 'http' | 'https'): string {
  const match = /:([0-9]{1,5})$/.exec(host);
  return match?.[1] ?? (protocol === 'https' ? '443' : '80');
}

const forwardedNode = (peer: string) => (peer.includes(':') ? `"[${peer}]"` : peer);
/** `host` has been checked to hold no quote and no backslash; a colon makes quotes necessary. */
const quoted = (host: string) => `"${host}"`;
