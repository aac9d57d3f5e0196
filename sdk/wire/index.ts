export * from './admin.ts';
export * from './network.ts';
export * from './sandbox.ts';
export * from './sandbox-io.ts';
