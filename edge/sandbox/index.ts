/** Sandboxes of one node: leased machines with an id, a deadline and a memory that can be paused, forked and rewound. */
export { createSandboxes, type SandboxKeeping, type SandboxParts } from './create.ts';
export { createSandboxNetworks } from './network.ts';
export { loadSandboxSecret } from './secret.ts';
export { openSandboxStore, type SandboxStore } from './store.ts';
