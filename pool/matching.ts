/** Which machine may serve which acquire. Pure questions over slots; the answers change nothing. */
import { type Demand, isSameDemand, type ServingState } from './machine-state.ts';
import type { CheckedPoolOptions } from './options.ts';
import type { Slot } from './slot.ts';

export type MatchRules = Pick<CheckedPoolOptions, 'reuse' | 'concurrency' | 'maxInvocations'>;

/** What an acquire asks for under the template's reuse policy. */
export function demandOf(
  rules: MatchRules,
  request: { readonly session?: string | undefined; readonly isExclusive?: boolean | undefined },
): Demand {
  if (request.isExclusive === true || rules.reuse === 'never') return { kind: 'single' };
  if (rules.reuse === 'always') return { kind: 'shared' };
  return request.session === undefined ? { kind: 'single' } : { kind: 'session', key: request.session };
}

/** Invocations at once that a fresh machine could take for this demand. */
const placesFor = (rules: MatchRules, demand: Demand): number =>
  demand.kind === 'single' ? 1 : Math.min(rules.concurrency, rules.maxInvocations);

/** Whether it will take another lease, now or when one of its leases ends. */
const isOpen = (rules: MatchRules, state: ServingState): boolean =>
  state.retiring === null && state.granted < rules.maxInvocations && state.tenancy.kind !== 'single';

/** Whether it takes another lease now. */
export const hasRoom = (rules: MatchRules, state: ServingState): boolean =>
  isOpen(rules, state) && state.leases < (state.tenancy.kind === 'unclaimed' ? 1 : rules.concurrency);

/** The machine that a session is bound to, busy or not. */
export function homeOf(rules: MatchRules, slots: Iterable<Slot>, key: string): Slot | undefined {
  for (const slot of slots) {
    const { state } = slot;
    if (state.kind !== 'serving' || state.tenancy.kind !== 'session') continue;
    if (state.tenancy.key === key && isOpen(rules, state)) return slot;
  }
  return undefined;
}

/**
 * The best of `open` machines (each with room) for a demand: the one used last, so that the surplus goes idle and
 * expires. A session gets its own machine, or an unclaimed one if it has none.
 */
export function bestServing(open: readonly Slot[], demand: Demand, home: Slot | undefined): Slot | undefined {
  let best: Slot | undefined;
  for (const slot of open) {
    const { state } = slot;
    if (state.kind !== 'serving') continue;
    const fits =
      state.tenancy.kind === 'unclaimed'
        ? home === undefined
        : demand.kind !== 'single' && isSameDemand(state.tenancy, demand);
    if (fits && (best === undefined || slot.idleAt > best.idleAt)) best = slot;
  }
  return best;
}

/** Whether a machine being brought up has a place left for one more waiter of this kind. */
export function canJoin(rules: MatchRules, slot: Slot, demand: Demand): boolean {
  const [first] = slot.claims;
  if (first === undefined) return true;
  return isSameDemand(first.demand, demand) && slot.claims.size < placesFor(rules, demand);
}
