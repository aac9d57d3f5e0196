export * from './admin.ts';
export * from './sandbox.ts';
export * from './sandbox-io.ts';
