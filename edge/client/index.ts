export { createHttpEdgeClient, type EdgeAddress } from './http-client.ts';
export type * from './port.ts';
export type * from './sandbox-port.ts';
