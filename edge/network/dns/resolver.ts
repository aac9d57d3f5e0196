/** Addresses of names for all machines of a node: cached, one question at a time per name, aliases followed. */

import type { DecodedPacket } from 'dns-packet';
import { LRUCache } from 'lru-cache';
import { parseAddress } from '../rules/address.ts';
import { type AddressType, askUpstream, type UpstreamServer } from './upstream.ts';

/** What is known of a name; empty `addresses` with `exists`: it has none of that family. */
export interface Resolution {
  readonly exists: boolean;
  readonly addresses: readonly string[];
  /** Epoch ms until which it holds. */
  readonly expiresAt: number;
}

export interface Resolver {
  /** `name` is canonical. Rejects when no upstream answers. */
  resolve(name: string, type: AddressType): Promise<Resolution>;
}

export interface ResolverDeps {
  readonly now: () => number;
}

export interface ResolverOptions {
  /** Asked in order. */
  readonly servers: readonly UpstreamServer[];
  /** For one server. Default 2000. */
  readonly timeoutMs?: number;
  /** Names kept. Default 10 000. */
  readonly cacheEntries?: number;
  /** Bounds on how long an answer holds, whatever it says. Default 5 and 3600. */
  readonly minTtlSeconds?: number;
  readonly maxTtlSeconds?: number;
}

const maxAliases = 8;
/** Most addresses taken from an answer. */
const maxAddresses = 32;
const negativeTtlSeconds = 10;

const rcodes = { noError: 0, noSuchName: 3 };
const rcodeOf = (packet: DecodedPacket): number => (packet.flags ?? 0) & 15;

export function createResolver(deps: ResolverDeps, options: ResolverOptions): Resolver {
  const minTtl = options.minTtlSeconds ?? 5;
  const maxTtl = options.maxTtlSeconds ?? 3600;
  const cache = new LRUCache<string, Resolution>({ max: options.cacheEntries ?? 10_000 });
  const underWay = new Map<string, Promise<Resolution>>();

  async function ask(name: string, type: AddressType): Promise<DecodedPacket> {
    let lastError: unknown = new Error('no resolver is configured');
    for (const server of options.servers) {
      try {
        const answer = await askUpstream(
          server,
          { name, type },
          AbortSignal.timeout(options.timeoutMs ?? 2000),
        );
        if ([rcodes.noError, rcodes.noSuchName].includes(rcodeOf(answer))) return answer;
        lastError = new Error(`the resolver answered with code ${rcodeOf(answer)}`);
      } catch (error) {
        lastError = error;
      }
    }
    throw lastError;
  }

  async function lookUp(name: string, type: AddressType): Promise<Resolution> {
    let current = name;
    let ttl = maxTtl;
    const finish = (exists: boolean, addresses: readonly string[], seconds: number): Resolution => ({
      exists,
      addresses,
      expiresAt: deps.now() + Math.min(maxTtl, Math.max(minTtl, seconds)) * 1000,
    });
    for (let aliases = 0; aliases <= maxAliases; ) {
      const answer = await ask(current, type);
      let moved = false;
      for (; aliases <= maxAliases; aliases += 1) {
        const alias = (answer.answers ?? []).find(
          (a) => a.type === 'CNAME' && a.name.toLowerCase() === current,
        );
        if (alias?.type !== 'CNAME') break;
        ttl = Math.min(ttl, alias.ttl ?? 0);
        current = alias.data.toLowerCase();
        moved = true;
      }
      const addresses: string[] = [];
      for (const record of answer.answers ?? []) {
        if (record.type !== type || record.name.toLowerCase() !== current || addresses.length >= maxAddresses)
          continue;
        const parsed = parseAddress(record.data);
        // A mapped address has another family than its record says: nobody needs that.
        if (parsed === null || parsed.family !== (type === 'A' ? 4 : 6)) continue;
        addresses.push(parsed.text);
        ttl = Math.min(ttl, record.ttl ?? 0);
      }
      if (addresses.length > 0) return finish(true, addresses, ttl);
      if (rcodeOf(answer) === rcodes.noSuchName) return finish(false, [], negativeTtlSeconds);
      if (!moved) return finish(true, [], negativeTtlSeconds);
    }
    throw new Error('too many aliases');
  }

  return {
    async resolve(name, type) {
      const key = `${type} ${name}`;
      const cached = cache.get(key);
      if (cached !== undefined && cached.expiresAt > deps.now()) return cached;
      const running = underWay.get(key);
      if (running !== undefined) return await running;
      const started = lookUp(name, type);
      underWay.set(key, started);
      try {
        const found = await started;
        cache.set(key, found);
        return found;
      } finally {
        underWay.delete(key);
      }
    },
  };
}
