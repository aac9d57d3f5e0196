/** `X-Metadata-*` headers of an upload. */
import { GatewayError } from '../../../../sdk/index.ts';
import { metadataPrefix } from '../filesystem/entry.ts';
import type { HttpRequest } from '../http.ts';

const header = 'x-metadata-';
/** An extended attribute's name has at most 255 bytes. */
const maxKey = 255 - metadataPrefix.length;
const maxBytes = 4096;
const printable = /^[\x20-\x7e]*$/;

/**
 * What is to be kept with each uploaded file; keys in lower case, as HTTP/2 carries them.
 * @throws GatewayError `invalid_request` naming the header
 */
export function metadataHeaders(request: HttpRequest): Record<string, string> {
  const found: Record<string, string> = {};
  let bytes = 0;
  for (const [name, value] of Object.entries(request.headers)) {
    if (!name.startsWith(header) || typeof value !== 'string') continue;
    const key = name.slice(header.length);
    bytes += key.length + value.length;
    if (key === '' || key.length > maxKey || !printable.test(value) || bytes > maxBytes) {
      throw new GatewayError('invalid_request', `metadata ${JSON.stringify(key)} can't be kept`, {
        field: name,
      });
    }
    found[key] = value;
  }
  return found;
}

/** As the agent takes it; undefined when there is none. */
export function attributesOf(metadata: Record<string, string>): Record<string, string> | undefined {
  const entries = Object.entries(metadata);
  if (entries.length === 0) return undefined;
  return Object.fromEntries(entries.map(([key, value]) => [`${metadataPrefix}${key}`, value]));
}
