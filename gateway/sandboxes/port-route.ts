import { isSandboxId, type SandboxId } from '../../sdk/index.ts';
import type { FunctionRoute } from '../functions/route.ts';

/** A request to a port of a sandbox. `template` and `ref` carry id and port for whoever logs routes. */
export interface PortRoute extends FunctionRoute {
  readonly sandbox: SandboxId;
  readonly port: number;
}

const pattern = /^\/v1\/sandboxes\/([a-z0-9]{20})\/ports\/([0-9]{1,5})(?=[/?]|$)/;

/**
 * `/v1/sandboxes/{id}/ports/{port}/{path…}`; the path behind the port stays byte for byte what the client sent. Null for
 * anything else, which the API then refuses.
 */
export function parsePortRoute(path: string): PortRoute | null {
  const match = pattern.exec(path);
  const [prefix = '', sandbox = '', digits = ''] = match ?? [];
  const port = Number(digits);
  if (match === null || !isSandboxId(sandbox) || port < 1 || port > 65_535) return null;
  const rest = path.slice(prefix.length);
  return {
    sandbox,
    port,
    template: sandbox,
    ref: digits,
    target: rest.startsWith('/') ? rest : `/${rest}`,
    prefix,
  };
}
