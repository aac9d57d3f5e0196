/** Tokens of one sandbox: derived from a secret of the gateway, so that they need no table and a child has its own. */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';

export interface SandboxTokens {
  /** Opens what envd serves: `X-Access-Token`. */
  envd(sandbox: string): string;
  /** Opens the ports of a sandbox whose traffic is not public: `e2b-traffic-access-token`. */
  traffic(sandbox: string): string;
}

/** The gateways' common secret, 32 bytes; made at the first start and kept in their database, which stays the caller's. */
export function loadTokenSecret(db: DatabaseSync): Uint8Array {
  db.exec('CREATE TABLE IF NOT EXISTS e2b_secrets (name TEXT PRIMARY KEY, secret BLOB NOT NULL) STRICT');
  // Of several gateways that start at once, the first one's is everybody's.
  db.prepare('INSERT OR IGNORE INTO e2b_secrets (name, secret) VALUES (?, ?)').run('tokens', randomBytes(32));
  const row = db.prepare('SELECT secret FROM e2b_secrets WHERE name = ?').get('tokens');
  return (row as { secret: Uint8Array }).secret;
}

/** @param secret of {@link loadTokenSecret} */
export function createSandboxTokens(secret: Uint8Array): SandboxTokens {
  const derive = (purpose: string, sandbox: string) =>
    createHmac('sha256', secret).update(`${purpose} ${sandbox}`).digest('hex').slice(0, 48);
  return {
    envd: (sandbox) => derive('envd', sandbox),
    traffic: (sandbox) => derive('traffic', sandbox),
  };
}

/** Compares in a time that tells nothing of where they differ. */
export function isSame(expected: string, given: string | undefined): boolean {
  if (given === undefined) return false;
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(expected), digest(given));
}
