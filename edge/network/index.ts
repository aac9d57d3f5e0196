/** Door of the network rules inside the edge; see README.md for what holds. */
export { runCommand } from './command.ts';
export { createResolver, type Resolver } from './dns/resolver.ts';
export { createNetnsSockets, type NetnsSockets } from './netns-sockets.ts';
export { type E2bNetwork, parseE2bNetwork } from './rules/e2b.ts';
export { type Destination, type Explanation, explain } from './rules/explain.ts';
export { createFloor, type Floor } from './rules/floor.ts';
export { type NetworkRules, parseRules } from './rules/rules.ts';
export { type NetworkRefusal, type NetworkSession, openNetworkSession } from './session.ts';
export { guestLink } from './slot/layout.ts';
export { openSlotPool, type SlotPool } from './slot/pool.ts';
export type { Slot } from './slot/slot.ts';
