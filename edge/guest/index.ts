export { connectGuest } from './connect.ts';
export type * from './port.ts';
export { createTunnelConnector } from './tunnel-connector.ts';
