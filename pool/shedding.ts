/** Which idle machines can be given up, in the order in which they should be. Leased ones never are. */
import type { Slot } from './slot.ts';

/**
 * `blank`: as the state. `ready`: ready machines above the floor. `idle`: serving but without an invocation, and of no
 * session, so that nobody misses it. `floor`: ready machines, the floor included.
 */
export type SheddableKind = 'blank' | 'ready' | 'idle' | 'floor';

const isIdleServing = ({ state }: Slot): boolean =>
  state.kind === 'serving' && state.leases === 0 && state.tenancy.kind !== 'session';

/** Machines of one kind, the longest idle first. Those claimed by a waiter are left out. */
function sheddable(slots: Iterable<Slot>, kind: SheddableKind): Slot[] {
  const state = kind === 'floor' ? 'ready' : kind;
  const found = [...slots].filter(
    (slot) => slot.claims.size === 0 && (kind === 'idle' ? isIdleServing(slot) : slot.state.kind === state),
  );
  return kind === 'idle' ? found.sort((a, b) => a.idleAt - b.idleAt) : found;
}

/** Up to `count` machines in the given order of kinds; `readyFloor` is what `ready` leaves. */
export function pickToShed(
  slots: ReadonlySet<Slot>,
  count: number,
  kinds: readonly SheddableKind[],
  readyFloor: number,
): Slot[] {
  const picked: Slot[] = [];
  for (const kind of kinds) {
    const found = sheddable(slots, kind);
    const spare = kind === 'ready' ? found.slice(0, Math.max(0, found.length - readyFloor)) : found;
    picked.push(...spare.slice(0, count - picked.length));
  }
  return picked;
}

/** Everything without an invocation in it, whatever its state: what a draining pool ends once nobody waits. */
export const unused = (slots: Iterable<Slot>): Slot[] =>
  [...slots].filter(({ state }) => state.kind !== 'serving' || state.leases === 0);
