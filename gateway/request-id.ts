import { randomUUID } from 'node:crypto';

const saneId = /^[A-Za-z0-9._~+/=:-]{1,128}$/;

/** The caller's `x-request-id` when it is printable, short and single; else a new UUID. */
export const requestIdOf = (header: string | string[] | undefined): string =>
  typeof header === 'string' && saneId.test(header) ? header : randomUUID();
