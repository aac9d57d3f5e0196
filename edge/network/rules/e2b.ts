/** The second front end: the `network` fields of an E2B sandbox. What is allowed there wins over what is denied. */
import { invalidRule, type NetworkRules, parseTarget, type Rule } from './rules.ts';

export interface E2bNetwork {
  /** Addresses, ranges and host names (`*.` in front: all below). */
  readonly allowOut?: readonly string[];
  /** Addresses and ranges; names can't be denied, their addresses can. */
  readonly denyOut?: readonly string[];
  /** False is the same as denying every address. */
  readonly allowInternetAccess?: boolean;
}

/** Most entries of either list. */
const maxE2bEntries = 1024;

/**
 * Order: allowOut, denyOut, else allowed. Throws `invalid_request`: a name in denyOut, ports (E2B has none), a name in
 * allowOut without a denial of all addresses, which would have no effect.
 */
export function parseE2bNetwork(input: E2bNetwork): NetworkRules {
  const allow = entries(input.allowOut ?? [], 'allow', 'network.allowOut');
  const deny = entries(input.denyOut ?? [], 'refuse', 'network.denyOut');
  const isClosed = input.allowInternetAccess === false || deny.some(({ target }) => target.kind === 'any');
  const named = allow.find(({ target }) => target.kind === 'host');
  if (named !== undefined && !isClosed)
    throw invalidRule(
      named.text,
      'a name needs 0.0.0.0/0 in denyOut, else everything is allowed anyway',
      'network.allowOut',
    );
  return { rules: [...allow, ...deny], otherwise: isClosed ? 'refuse' : 'allow' };
}

function entries(list: readonly string[], verdict: Rule['verdict'], field: string): Rule[] {
  if (list.length > maxE2bEntries) throw invalidRule(field, `more than ${maxE2bEntries} entries`, field);
  return list.map((text) => {
    const { target, port } = parseTarget(text, field);
    if (port !== null) throw invalidRule(text, 'takes no port here', field);
    if (verdict === 'refuse' && target.kind === 'host')
      throw invalidRule(text, 'must be an address or a range', field);
    const isAll = target.kind === 'any' || (target.kind === 'range' && target.range.text === '0.0.0.0/0');
    return { text, target: isAll ? { kind: 'any' } : target, port: null, verdict };
  });
}
