export * from './admin-client.ts';
export { isUnreachable } from './answer-error.ts';
export type { BodySource } from './bounded-body.ts';
export type { InvocationStart, InvokeAnswer, InvokeCall } from './invoke.ts';
export { visibleText } from './visible-text.ts';
