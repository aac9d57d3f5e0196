export * from './admin.ts';
export * from './sandbox.ts';
