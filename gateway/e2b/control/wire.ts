/** How sandboxes look in E2B's API. */
import type { CreatedSandbox, SandboxInfo } from '../../../sdk/index.ts';
import type { SandboxTokens } from '../access/tokens.ts';
import { readAttributes } from '../attributes.ts';
import { envdVersion } from '../version.ts';

/** Every sandbox is somebody's client there; nobody reads it any more. */
const clientID = 'snapgate';
const iso = (epochMs: number): string => new Date(epochMs).toISOString();

/** What a sandbox that is on its way from one state to another counts as. */
export const stateOf = ({ state }: SandboxInfo): 'running' | 'paused' =>
  state === 'paused' || state === 'resuming' ? 'paused' : 'running';

const names = ({ template }: SandboxInfo) => ({ templateID: template, alias: template });

/** The answer of create, connect, resume and fork. */
export function showCreated(
  sandbox: SandboxInfo | CreatedSandbox,
  tokens: SandboxTokens,
): Record<string, unknown> {
  const { isSecure, isPublic } = readAttributes(sandbox);
  return {
    sandboxID: sandbox.id,
    ...names(sandbox),
    clientID,
    envdVersion,
    ...(isSecure ? { envdAccessToken: tokens.envd(sandbox.id) } : {}),
    ...(isPublic ? {} : { trafficAccessToken: tokens.traffic(sandbox.id) }),
  };
}

/** One row of a listing. */
export function showListed(sandbox: SandboxInfo): Record<string, unknown> {
  return {
    sandboxID: sandbox.id,
    ...names(sandbox),
    clientID,
    envdVersion,
    startedAt: iso(sandbox.startedAt),
    endAt: iso(sandbox.deadlineAt),
    cpuCount: sandbox.vcpus,
    memoryMB: sandbox.memoryMiB,
    diskSizeMB: sandbox.diskMiB,
    state: stateOf(sandbox),
    metadata: sandbox.metadata,
  };
}

/** The answer of get. */
export function showDetail(sandbox: SandboxInfo, tokens: SandboxTokens): Record<string, unknown> {
  const { isSecure, isPublic, maskRequestHost } = readAttributes(sandbox);
  const choice = sandbox.network?.kind === 'e2b' ? sandbox.network : undefined;
  return {
    ...showListed(sandbox),
    ...(isSecure ? { envdAccessToken: tokens.envd(sandbox.id) } : {}),
    ...(choice?.allowInternetAccess === undefined ? {} : { allowInternetAccess: choice.allowInternetAccess }),
    network: {
      ...(choice?.allowOut === undefined ? {} : { allowOut: choice.allowOut }),
      ...(choice?.denyOut === undefined ? {} : { denyOut: choice.denyOut }),
      allowPublicTraffic: isPublic,
      ...(maskRequestHost === undefined ? {} : { maskRequestHost }),
    },
    lifecycle: { autoResume: sandbox.autoResume, onTimeout: sandbox.onTimeout },
  };
}
