import type { IncomingHttpHeaders } from 'node:http';

/** A Snapgate key as a request carried it. */
export interface Credential {
  readonly key: string;
  readonly header: 'authorization' | 'x-api-key';
}

const bearer = /^bearer +(\S+) *$/i;

/**
 * Keys a request carries, in the order they are tried. `X-API-KEY` comes first, so that a caller can authenticate here
 * and still send the function an `Authorization` of its own.
 */
export function credentialsOf(headers: IncomingHttpHeaders): Credential[] {
  const credentials: Credential[] = [];
  const apiKey = headers['x-api-key'];
  if (typeof apiKey === 'string') credentials.push({ key: apiKey.trim(), header: 'x-api-key' });
  const token = headers.authorization === undefined ? null : bearer.exec(headers.authorization);
  if (token?.[1] !== undefined) credentials.push({ key: token[1], header: 'authorization' });
  return credentials;
}
