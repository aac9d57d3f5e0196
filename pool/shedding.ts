/** Which idle machines can be given up, in the order in which they should be. Leased ones never are. */
import type { Slot } from './slot.ts';

/**
 * `blank` and `ready`: as the states. `idle`: serving but without an invocation, and of no session, so that nobody
 * misses it.
 */
export type SheddableKind = 'blank' | 'ready' | 'idle';

const isIdleServing = ({ state }: Slot): boolean =>
  state.kind === 'serving' && state.leases === 0 && state.tenancy.kind !== 'session';

/** Machines of one kind, the longest idle first. Those claimed by a waiter are left out. */
export function sheddable(slots: Iterable<Slot>, kind: SheddableKind): Slot[] {
  const found = [...slots].filter(
    (slot) => slot.claims.size === 0 && (kind === 'idle' ? isIdleServing(slot) : slot.state.kind === kind),
  );
  return kind === 'idle' ? found.sort((a, b) => a.idleAt - b.idleAt) : found;
}

/** Up to `count` machines in the given order of kinds, keeping `readyFloor` ready ones. */
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

/** Everything that nobody uses or waits for, whatever its state: what a draining pool ends. */
export const unused = (slots: Iterable<Slot>): Slot[] =>
  [...slots].filter(
    (slot) =>
      !slot.isEnding && slot.claims.size === 0 && !(slot.state.kind === 'serving' && slot.state.leases > 0),
  );
