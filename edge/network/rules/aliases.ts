/**
 * Groups of hosts with a name. Each is what the stock client of that registry talks to, and nothing else: no mirror, no
 * code host. Documented here; `snapgate network explain` names the group that decided.
 */

/** Hosts of each group; ports as for any host rule: 80 and 443. */
export const aliases = {
  /** `pip install`: the index and where it keeps files. */
  pypi: ['pypi.org', 'files.pythonhosted.org'],
  /** `npm install`: the registry serves metadata and archives. */
  npm: ['registry.npmjs.org'],
  /** `apt-get install` on a stock Debian, with security updates. */
  debian: ['deb.debian.org', 'security.debian.org', 'cdn-fastly.deb.debian.org'],
} as const satisfies Record<string, readonly string[]>;

export type AliasName = keyof typeof aliases;
export const isAliasName = (text: string): text is AliasName => Object.hasOwn(aliases, text);
