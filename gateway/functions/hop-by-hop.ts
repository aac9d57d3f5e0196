/** Headers that belong to one connection and must not cross a proxy (RFC 9110 §7.6.1). */

const always: ReadonlySet<string> = new Set([
  'connection',
  'proxy-connection',
  'keep-alive',
  'te',
  'transfer-encoding',
  'upgrade',
  'proxy-authenticate',
  'proxy-authorization',
]);

/** A peer that lists these in `Connection` would break the message; the field stays (RFC 9110 §7.6.1, last paragraph). */
const neverNamed: ReadonlySet<string> = new Set(['host', 'content-length', 'content-type']);

const none: ReadonlySet<string> = new Set();

/** Lower-case names which `Connection` headers of this message declare hop-by-hop. */
export function connectionOptions(rawHeaders: readonly string[]): ReadonlySet<string> {
  let named: Set<string> | undefined;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue;
    const value = rawHeaders[at + 1]!;
    if (value === 'keep-alive' || value === 'close') continue;
    named ??= new Set();
    for (const option of value.toLowerCase().split(',')) named.add(option.trim());
  }
  return named ?? none;
}

/** Whether a header stops here. `name` is lower-case, `options` from {@link connectionOptions} of the same message. */
export const isHopByHop = (name: string, options: ReadonlySet<string>): boolean =>
  always.has(name) || (options.size > 0 && options.has(name) && !neverNamed.has(name));
