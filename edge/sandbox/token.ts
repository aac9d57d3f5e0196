/** Tokens of sandboxes: derived, so that they are written down nowhere and are the same over restarts. */
import { createHmac, timingSafeEqual } from 'node:crypto';

export interface Tokens {
  /** 40 hex digits. */
  of(sandbox: string): string;
  /** In constant time. */
  isOf(sandbox: string, given: string): boolean;
}

/** @param secret 32 bytes that only this node knows */
export function createTokens(secret: Uint8Array): Tokens {
  const of = (sandbox: string) =>
    createHmac('sha256', secret).update(`sandbox ${sandbox}`).digest('hex').slice(0, 40);
  return {
    of,
    isOf(sandbox, given) {
      const [expected, found] = [Buffer.from(of(sandbox)), Buffer.from(given)];
      return found.length === expected.length && timingSafeEqual(found, expected);
    },
  };
}
