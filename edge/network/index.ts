/** The door to network rules. The pure part, without machines, is what the command line asks. */
export { type NetworkConfig, networkConfigSchema } from './config.ts';
export type { MachineNetworks } from './machine-networks.ts';
export { slotOfLeftover, withNetworkCards } from './networked-vmm.ts';
export { openNetworks, readNetworkConfig } from './open.ts';
export { allowsAnything, effectiveRules } from './rules/choice.ts';
