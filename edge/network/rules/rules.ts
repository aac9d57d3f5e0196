/** Network rules in normal form, and the native way of writing them (`network` of a template). */
import { GatewayError } from '../../../sdk/index.ts';
import { type AddressRange, parseRange } from './address.ts';
import { aliases, isAliasName } from './aliases.ts';

export type Target =
  | { readonly kind: 'any' }
  /** Lower-case, no final dot. A wildcard matches names below it, at any depth, not itself. */
  | { readonly kind: 'host'; readonly name: string; readonly isWildcard: boolean }
  | { readonly kind: 'range'; readonly range: AddressRange };

export interface Rule {
  /** As its author wrote it; what events and `explain` name. */
  readonly text: string;
  readonly target: Target;
  /** Null: every port of a range; of a host those in {@link hostPorts} when allowed, all when refused. */
  readonly port: number | null;
  readonly verdict: 'allow' | 'refuse';
}

/** The first rule that matches decides; the floor comes before all of them. */
export interface NetworkRules {
  readonly rules: readonly Rule[];
  /** What no rule matches. */
  readonly otherwise: 'allow' | 'refuse';
}

/** Ports of a host rule without one: those on which the name can be checked on the connection. TCP only. */
export const hostPorts: readonly number[] = [80, 443];

/** Most rules of one set, groups expanded. */
const maxRules = 4096;

/** Refuses everything; what a machine without rules would have if it had a NIC. */
export const closedRules: NetworkRules = { rules: [], otherwise: 'refuse' };

export const invalidRule = (text: string, why: string, field = 'network'): GatewayError =>
  new GatewayError('invalid_request', `network rule ${JSON.stringify(text.slice(0, 300))}: ${why}`, {
    component: 'edge',
    field,
  });

const label = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** A DNS name in canonical form, or null. Names that look like IPv4 addresses are none. */
export function parseHostName(text: string): string | null {
  const name = text.toLowerCase().replace(/\.$/, '');
  const labels = name.split('.');
  if (name.length > 253 || labels.length < 2 || !labels.every((part) => label.test(part))) return null;
  return /^\d+$|^0x/.test(labels.at(-1) ?? '') ? null : name;
}

/** `host`, `*.host`, `range`, each with an optional `:port`, or `*`. Throws `invalid_request`. */
export function parseTarget(
  text: string,
  field?: string,
): { readonly target: Target; readonly port: number | null } {
  const whole = parseTargetOnly(text);
  if (whole !== null) return { target: whole, port: null };
  const colon = text.lastIndexOf(':');
  const target = colon === -1 ? null : parseTargetOnly(text.slice(0, colon));
  if (target === null)
    throw invalidRule(text, 'must be a group, a host, *.host, an address range or *', field);
  const portText = text.slice(colon + 1);
  if (!/^[1-9]\d{0,4}$/.test(portText) || Number(portText) > 65_535)
    throw invalidRule(text, 'the port must be between 1 and 65535', field);
  // 2001:db8::1:443 could be either; brackets say which.
  if (target.kind === 'range' && target.range.family === 6 && !text.startsWith('['))
    throw invalidRule(text, 'put an IPv6 address in brackets before a port', field);
  return { target, port: Number(portText) };
}

function parseTargetOnly(text: string): Target | null {
  if (text === '*') return { kind: 'any' };
  const range = parseRange(text);
  if (range !== null) return { kind: 'range', range };
  const isWildcard = text.startsWith('*.');
  const name = parseHostName(isWildcard ? text.slice(2) : text);
  return name === null ? null : { kind: 'host', name, isWildcard };
}

/** The native form: a rule set to false subtracts from all others, whatever its place. Throws `invalid_request`. */
export function parseRules(input: Readonly<Record<string, boolean>>): NetworkRules {
  const allowed: Rule[] = [];
  const refused: Rule[] = [];
  for (const [text, isAllowed] of Object.entries(input)) {
    const list = isAllowed ? allowed : refused;
    const verdict = isAllowed ? 'allow' : 'refuse';
    const texts = isAliasName(text) ? aliases[text] : [text];
    for (const each of texts) list.push({ text, ...parseTarget(each), verdict });
    if (allowed.length + refused.length > maxRules) throw invalidRule(text, `more than ${maxRules} rules`);
  }
  return { rules: [...refused, ...allowed], otherwise: 'refuse' };
}

/** Whether a host target covers this canonical name. */
export const matchesName = (target: Target, name: string): boolean =>
  target.kind === 'host' && (target.isWildcard ? name.endsWith(`.${target.name}`) : name === target.name);

/** Whether names have to be checked on connections, and UDP 443 (QUIC hides the name) is refused. */
export const namesMatter = (rules: NetworkRules): boolean =>
  rules.rules.some(({ target }) => target.kind === 'host');
