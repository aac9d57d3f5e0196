/** Which rules hold for a machine: those of its template, unless its sandbox has its own. */
import type { NetworkChoice } from '../../../sdk/index.ts';
import { parseE2bNetwork } from './e2b.ts';
import { type NetworkRules, parseRules } from './rules.ts';

/** Throws `invalid_request` for rules that mean nothing. */
export function effectiveRules(
  template: Readonly<Record<string, boolean>>,
  own: NetworkChoice | null,
): NetworkRules {
  switch (own?.kind) {
    case undefined:
      return parseRules(template);
    case 'native':
      return parseRules(own.rules);
    case 'e2b':
      return parseE2bNetwork(own);
  }
}

/** Whether rules could let anything through; those of a machine without a network card can't. */
export const allowsAnything = (rules: NetworkRules): boolean =>
  rules.otherwise === 'allow' || rules.rules.some(({ verdict }) => verdict === 'allow');
