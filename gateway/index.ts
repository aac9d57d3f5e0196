/** The door to the gateway. Composition roots (`main.ts`, `up.ts`) and the command line are not behind it. */

export { redactedPaths } from './fields.ts';
export { createGateway, type Gateway, type GatewayDeps, type ListenOptions } from './gateway.ts';
export { createKeyStore, type KeyIdentity, type KeyStore, type KeyStoreOptions } from './keys/store.ts';
export { type GatewayOptions, type GatewayOptionsInput, gatewayOptionsSchema } from './options.ts';
export { type Placement, type PlacementWish, singleEdge } from './placement.ts';
