import { randomBytes } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { GatewayError } from '../../sdk/index.ts';
import { syncPath } from './durable.ts';

const secretPattern = /^[0-9a-f]{64}$/;

/** The secret from which the tokens of sandboxes are derived: read from its file (0600), or drawn and kept on the first start. */
export async function loadSandboxSecret(path: string): Promise<Uint8Array> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
  if (text !== null) {
    if (secretPattern.test(text)) return Buffer.from(text, 'hex');
    throw new GatewayError('host_not_ready', `${path} is damaged`, { component: 'edge' });
  }
  const secret = randomBytes(32);
  await writeFile(`${path}.new`, secret.toString('hex'), { mode: 0o600 });
  await syncPath(`${path}.new`);
  await rename(`${path}.new`, path);
  return secret;
}
