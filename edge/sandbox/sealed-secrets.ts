/**
 * Secrets of sandboxes at rest: sealed under a key of this node, so that a sandbox has them after a restart of the edge and after a
 * pause, and the database alone shows none.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { environmentSchema } from '../../sdk/index.ts';

type Secrets = Readonly<Record<string, string>>;

/** Base64 of nonce (12 bytes), tag (16) and ciphertext. */
export const sealedSchema = z.base64().max(8 * 1024 * 1024);

export interface SecretBox {
  /** Null when there are none. @param sandbox whose they are: sealed secrets of one do not open for another */
  seal(sandbox: string, secrets: Secrets): string | null;
  /** Null when they can't be opened: the node has another key than when they were sealed, or they were changed. */
  open(sandbox: string, sealed: string): Secrets | null;
}

/** @param nodeSecret from its file of mode 0600; the key is derived from it for this use only */
export function createSecretBox(nodeSecret: Uint8Array): SecretBox {
  const key = Buffer.from(hkdfSync('sha256', nodeSecret, '', 'snapgate sandbox secrets', 32));
  return {
    seal(sandbox, secrets) {
      if (Object.keys(secrets).length === 0) return null;
      const nonce = randomBytes(12);
      const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(sandbox));
      const sealed = Buffer.concat([cipher.update(JSON.stringify(secrets), 'utf8'), cipher.final()]);
      return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64');
    },
    open(sandbox, sealed) {
      const bytes = Buffer.from(sealed, 'base64');
      try {
        const cipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, 12), { authTagLength: 16 });
        cipher.setAAD(Buffer.from(sandbox)).setAuthTag(bytes.subarray(12, 28));
        const text = Buffer.concat([cipher.update(bytes.subarray(28)), cipher.final()]).toString('utf8');
        return environmentSchema.parse(JSON.parse(text));
      } catch {
        return null;
      }
    },
  };
}
