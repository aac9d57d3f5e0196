/** Who reaches a port of a sandbox by its host name, and the words in which clients of E2B are refused. */
import type { IncomingHttpHeaders } from 'node:http';
import { gzipSync } from 'node:zlib';
import type { SandboxEdge } from '../../edge/client/index.ts';
import { GatewayError, type SandboxId } from '../../sdk/index.ts';
import { toGatewayError } from '../errors.ts';
import type { PortPolicy } from '../sandboxes/port-policy.ts';
import { isSame, type SandboxTokens } from './access/tokens.ts';
import { portPlaceholder, readAttributes } from './attributes.ts';

const tokenHeader = 'e2b-traffic-access-token';
/** Where `@e2b/code-interpreter` expects its server, which can't ask anybody inside for the env of the sandbox. */
const interpreterPort = 49_999;
const envsHeader = 'e2b-sandbox-envs';
const maxHeaderBytes = 48 * 1024;

/** The env as gzipped JSON in base64. @throws GatewayError `headers_too_large` */
function envHeaders({ env }: { readonly env: Readonly<Record<string, string>> }): string[] {
  if (Object.keys(env).length === 0) return [];
  const value = gzipSync(JSON.stringify(env)).toString('base64');
  if (value.length <= maxHeaderBytes) return [envsHeader, value];
  const message = `the env of the sandbox is too large for its code interpreter: ${value.length} bytes`;
  throw new GatewayError('headers_too_large', message, { extra: { limitBytes: maxHeaderBytes } });
}

/** Ports are everybody's unless the sandbox was made with `allowPublicTraffic: false`, or by another door. */
export function createTrafficPolicy(deps: {
  readonly sandboxes: SandboxEdge;
  readonly tokens: SandboxTokens;
}): PortPolicy {
  const { sandboxes, tokens } = deps;
  return {
    async admit(id: SandboxId, port: number, headers: IncomingHttpHeaders) {
      const info = await sandboxes.get(id);
      if (info.state === 'ended' || (info.state === 'paused' && !info.autoResume)) throw gone(id);
      const { isPublic, maskRequestHost } = readAttributes(info);
      const given = headers[tokenHeader];
      const token = Array.isArray(given) ? given[0] : given;
      if (!isPublic && !isSame(tokens.traffic(id), token)) {
        const message =
          token === undefined ? 'traffic access token is missing' : 'traffic access token is invalid';
        throw new GatewayError('forbidden', message, { extra: { sandboxId: id, port } });
      }
      return {
        hidden: [tokenHeader, envsHeader],
        ...(port === interpreterPort ? { headers: envHeaders } : {}),
        ...(maskRequestHost === undefined
          ? {}
          : { host: maskRequestHost.replace(portPlaceholder, String(port)) }),
      };
    },

    refuse(thrown, id, port) {
      const error = toGatewayError(thrown);
      if (
        error.code === 'sandbox_not_found' ||
        (error.code === 'conflict' && /is paused/.test(error.message))
      ) {
        return gone(id);
      }
      if (error.code === 'function_port_closed') {
        return new GatewayError('function_port_closed', 'The sandbox is running but port is not open', {
          ...error.details,
          extra: { sandboxId: id, port },
        });
      }
      if (error.code === 'version_unavailable') {
        return new GatewayError('conflict', 'The sandbox is still transitioning', {
          ...error.details,
          extra: { sandboxId: id },
        });
      }
      if (error.code === 'node_at_capacity') {
        return new GatewayError(
          'rate_limited',
          'connectionLimit: too many requests to sandboxes are under way',
          {
            ...error.details,
            retryAfterSeconds: error.details.retryAfterSeconds ?? 1,
            extra: { sandboxId: id },
          },
        );
      }
      return error;
    },
  };
}

/** 502 is what clients take for "it runs no more". */
const gone = (sandboxId: string) =>
  new GatewayError('guest_unreachable', 'The sandbox was not found', { extra: { sandboxId } });
