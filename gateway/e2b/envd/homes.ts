/** Home directories of users inside sandboxes, for paths that are relative to them. */
import { posix } from 'node:path';
import { text } from 'node:stream/consumers';
import { LRUCache } from 'lru-cache';
import type { SandboxUse } from '../../../edge/client/index.ts';
import { GatewayError, type SandboxId } from '../../../sdk/index.ts';

/** How a home directory is asked for. */
interface Asking {
  readonly id: SandboxId;
  readonly user: string;
  readonly channel: SandboxUse['channel'];
  readonly signal: AbortSignal;
}

export interface Homes {
  /** @throws GatewayError `invalid_request` when there is no such user */
  of(asking: Asking): Promise<string>;
  /** An absolute path without `.` and `..`; what is relative begins at the user's home directory. */
  resolve(path: string, asking: Asking): Promise<string>;
}

const kept = 4096;
const keptMs = 300_000;
const passwdBytes = 256 * 1024;

/** Owns a bounded cache. */
export function createHomes(): Homes {
  const cache = new LRUCache<string, string>({ max: kept, ttl: keptMs });
  const of: Homes['of'] = async ({ id, user, channel, signal }) => {
    const key = `${id} ${user}`;
    const known = cache.get(key);
    if (known !== undefined) return known;
    const passwd = await text(
      await channel.readFile('/etc/passwd', { signal, length: passwdBytes, offset: 0 }),
    );
    const line = passwd.split('\n').find((entry) => entry.startsWith(`${user}:`));
    const home = line?.split(':')[5];
    if (home === undefined)
      throw new GatewayError('invalid_request', `there is no user ${user}`, { field: 'user' });
    const absolute = home.startsWith('/') ? home : '/';
    cache.set(key, absolute);
    return absolute;
  };
  return {
    of,
    async resolve(path, asking) {
      if (path.includes('\0'))
        throw new GatewayError('invalid_request', 'a path holds no NUL', { field: 'path' });
      if (path.startsWith('/')) return normal(path);
      const home = await of(asking);
      const rest = path === '~' || path.startsWith('~/') ? path.slice(2) : path;
      return normal(posix.join(home, rest));
    },
  };
}

/** Without a slash at its end. */
function normal(path: string): string {
  const clean = posix.normalize(path);
  return clean.length > 1 && clean.endsWith('/') ? clean.slice(0, -1) : clean;
}
