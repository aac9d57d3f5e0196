/** Headers of a request as the function shall see them. */
import { headerNames } from '../../sdk/index.ts';
import {
  type ForwardedClaims,
  type ForwardedFacts,
  isForwardingHeader,
  noteClaim,
  pushForwarded,
} from './forwarded.ts';
import { connectionOptions, isHopByHop } from './hop-by-hop.ts';

export interface RequestHeaderFacts extends ForwardedFacts {
  readonly requestId: string;
  /** Lower-case names of headers that carry a Snapgate key: tenant code must never see it. */
  readonly credentialHeaders: readonly string[];
  /** Protocol of an upgrade that shall reach the function, such as `websocket`. */
  readonly upgrade: string | null;
}

/**
 * Order, case and duplicates are kept; hop-by-hop headers, forged forwarding headers, `x-snapgate-*` and the gateway's own
 * credential are not. Names with `_` for `-` go the way of the name they imitate: CGI-style servers (WSGI, PHP)
 * can't tell the two apart.
 */
export function functionHeaders(rawHeaders: readonly string[], facts: RequestHeaderFacts): string[] {
  const options = connectionOptions(rawHeaders);
  const headers: string[] = ['host', facts.host];
  let claims: ForwardedClaims | null = null;
  let acceptsTrailers = false;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const original = rawHeaders[at]!;
    const value = rawHeaders[at + 1]!;
    const name = original.toLowerCase();
    const canonical = name.includes('_') ? name.replaceAll('_', '-') : name;
    if (canonical === 'te' && /(^|,)\s*trailers\b/i.test(value)) acceptsTrailers = true;
    if (isDropped(name, canonical, facts) || isHopByHop(canonical, options)) continue;
    if (isForwardingHeader(canonical)) {
      if (!facts.isTrusted || canonical !== name) continue;
      claims ??= {
        for: [],
        forwarded: [],
        host: undefined,
        protocol: undefined,
        port: undefined,
        prefix: undefined,
      };
      noteClaim(claims, name, value);
      if (name === 'x-real-ip') headers.push(original, value);
      continue;
    }
    headers.push(original, value);
  }
  if (acceptsTrailers) headers.push('te', 'trailers');
  if (facts.upgrade !== null) headers.push('connection', 'Upgrade', 'upgrade', facts.upgrade);
  pushForwarded(headers, facts, claims);
  headers.push(headerNames.requestId, facts.requestId);
  return headers;
}

function isDropped(name: string, canonical: string, facts: RequestHeaderFacts): boolean {
  switch (canonical) {
    case 'host':
    case 'expect':
    case 'trailer':
    case headerNames.requestId:
      return true;
    case 'authorization':
    case 'x-api-key':
      return facts.credentialHeaders.includes(name);
    case headerNames.session:
      return canonical !== name;
    default:
      return canonical.startsWith('x-snapgate-') || facts.credentialHeaders.includes(name);
  }
}
