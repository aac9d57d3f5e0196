/** Who may do what with a sandbox: an API key everything, a sandbox's own token what happens inside that sandbox. */
import type { SandboxEdge } from '../../edge/client/index.ts';
import { isSandboxId } from '../../sdk/index.ts';
import type { Credential } from '../keys/credential.ts';

const insidePattern = /^\/v1\/sandboxes\/([a-z0-9]{20})\/(?:processes|files)(?:\/|$)/;

/** Whether one of the credentials is the token of the sandbox whose processes or files `path` names. */
export async function isOpenedByToken(
  edge: SandboxEdge | undefined,
  path: string,
  credentials: readonly Credential[],
): Promise<boolean> {
  const id = insidePattern.exec(path)?.[1];
  if (edge === undefined || id === undefined || !isSandboxId(id)) return false;
  for (const { key } of credentials) if (await edge.isToken(id, key)) return true;
  return false;
}

/** Bodies of these are streams, with bounds of their own. */
export const takesBytes = (method: string, path: string): boolean =>
  method === 'PUT' && /^\/v1\/sandboxes\/[^/]+\/(?:files|processes\/[^/]+\/stdin)$/.test(path);
