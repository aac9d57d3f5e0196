/** The one decision function: DNS, connections, events and `snapgate network explain` all ask it. Pure. */
import { contains, parseAddress } from './address.ts';
import { type Floor, floorReason, isPermitted } from './floor.ts';
import { hostPorts, matchesName, type NetworkRules, namesMatter, parseHostName, type Rule } from './rules.ts';

export type Protocol = 'tcp' | 'udp';

/** Where a connection wants to go. At least one of name and address. */
export interface Destination {
  readonly protocol: Protocol;
  readonly port: number;
  /** As the guest asked for it, or as the connection itself says (SNI, Host). */
  readonly name?: string;
  readonly address?: string;
}

export type DecisionReason = 'rule' | 'no_rule' | 'floor' | 'udp_443' | 'invalid_name' | 'invalid_address';

export interface Explanation {
  readonly verdict: 'allow' | 'refuse';
  readonly reason: DecisionReason;
  /** The deciding rule as its author wrote it; null when none did. */
  readonly rule: string | null;
  /** Why, for people; reads on after "allowed: " or "refused: ". */
  readonly text: string;
}

/** Allowed or refused, and by which rule. Without an address, the floor is checked again once there is one. */
export function explain(rules: NetworkRules, floor: Floor, destination: Destination): Explanation {
  const { port, protocol } = destination;
  const name = destination.name === undefined ? undefined : parseHostName(destination.name);
  if (name === null) return refuse('invalid_name', null, 'this is not a host name');
  const address = destination.address === undefined ? undefined : parseAddress(destination.address)?.text;
  if (destination.address !== undefined && address === undefined)
    return refuse('invalid_address', null, 'this is not an address');
  if (protocol === 'udp' && port === 443 && namesMatter(rules))
    return refuse(
      'udp_443',
      null,
      'UDP 443 is refused where rules name hosts: QUIC hides which one is meant',
    );
  const floored = address === undefined ? null : floorReason(floor, address);
  for (const rule of rules.rules) {
    if (!matches(rule, { protocol, port, name, address })) continue;
    if (floored !== null && rule.verdict === 'allow' && !mayOpen(rule, floor)) continue;
    return {
      verdict: rule.verdict,
      reason: 'rule',
      rule: rule.text,
      text: `by the rule ${JSON.stringify(rule.text)}`,
    };
  }
  if (floored !== null)
    return refuse(
      'floor',
      null,
      `${address} is never reachable (${floored}) unless the node's operator permits it and an address rule names it`,
    );
  return rules.otherwise === 'allow'
    ? { verdict: 'allow', reason: 'no_rule', rule: null, text: 'no rule refuses it' }
    : refuse('no_rule', null, 'no rule allows it');
}

/**
 * Whether a name may be resolved at all: whether some connection to it could be allowed on its name's account. Ports and
 * addresses are judged when the connection comes.
 */
export function explainName(rules: NetworkRules, name: string): Explanation {
  const canonical = parseHostName(name);
  if (canonical === null) return refuse('invalid_name', null, 'this is not a host name');
  for (const rule of rules.rules) {
    if (rule.target.kind !== 'any' && !matchesName(rule.target, canonical)) continue;
    if (rule.verdict === 'allow')
      return {
        verdict: 'allow',
        reason: 'rule',
        rule: rule.text,
        text: `by the rule ${JSON.stringify(rule.text)}`,
      };
    if (rule.port === null) return refuse('rule', rule.text, `by the rule ${JSON.stringify(rule.text)}`);
  }
  return rules.otherwise === 'allow'
    ? { verdict: 'allow', reason: 'no_rule', rule: null, text: 'no rule refuses it' }
    : refuse('no_rule', null, 'no rule allows this name');
}

/** Ports which rules open for this name on whatever public address it has; null: it needs no pin, addresses decide. */
export function portsOfName(
  rules: NetworkRules,
  name: string,
): readonly { readonly port: number; readonly protocol: Protocol }[] {
  const candidates = new Set(
    rules.rules.flatMap((rule) => (matchesName(rule.target, name) ? portsOf(rule) : [])),
  );
  const protocols: readonly Protocol[] = ['tcp', 'udp'];
  const anywhere: Floor = { refused: [], permitted: [] };
  return [...candidates].flatMap((port) =>
    protocols.flatMap((protocol) =>
      explain(rules, anywhere, { protocol, port, name }).verdict === 'allow' ? [{ port, protocol }] : [],
    ),
  );
}

const portsOf = (rule: Rule): readonly number[] => (rule.port === null ? hostPorts : [rule.port]);

function matches(
  rule: Rule,
  {
    protocol,
    port,
    name,
    address,
  }: { protocol: Protocol; port: number; name: string | undefined; address: string | undefined },
): boolean {
  const { target, verdict } = rule;
  if (rule.port !== null && rule.port !== port) return false;
  switch (target.kind) {
    case 'any':
      return true;
    case 'range':
      return address !== undefined && contains(target.range, address);
    case 'host':
      if (name === undefined || !matchesName(target, name)) return false;
      return rule.port !== null || verdict === 'refuse' || (protocol === 'tcp' && hostPorts.includes(port));
  }
}

const mayOpen = (rule: Rule, floor: Floor): boolean =>
  rule.target.kind === 'range' && isPermitted(floor, rule.target.range);

const refuse = (reason: DecisionReason, rule: string | null, text: string): Explanation => ({
  verdict: 'refuse',
  reason,
  rule,
  text,
});
