export type * from './port.ts';
export type * from './sandbox-port.ts';
