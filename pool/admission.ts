/** Whether the node has a place for one more VMM: asked by each pool, answered by the node. */
import type { GatewayError, VersionDigest } from '../sdk/index.ts';

/** `live`: an invocation waits for it. `refill`: nobody does, so it must be refused first. */
export type AdmissionKind = 'live' | 'refill';

/**
 * `pending`: no place yet, but one is being made; the pool will be poked when it is free.
 * `refused`: there is none; `error` is what an acquire gets that has nothing else to wait for (`node_at_capacity`).
 */
export type AdmissionVerdict =
  | { readonly kind: 'granted' }
  | { readonly kind: 'pending' }
  | { readonly kind: 'refused'; readonly error: GatewayError };

/** Asked right before a slot is opened; a granted slot counts in the pool's `size` when this is next asked. */
export type Admit = (kind: AdmissionKind, digest: VersionDigest) => AdmissionVerdict;

/** For pools whose node has no budget of its own. */
export const admitAll: Admit = () => ({ kind: 'granted' });
