export * from './client/index.ts';
export * from './clock.ts';
export * from './errors.ts';
export * from './ids.ts';
export * from './invocation.ts';
export * from './wire/index.ts';
