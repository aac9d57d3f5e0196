/** What E2B's API says about a sandbox that the node need not understand: kept with it, and with its children. */
import type { SandboxInfo } from '../../sdk/index.ts';

const names = {
  secure: 'e2b.secure',
  traffic: 'e2b.public-traffic',
  host: 'e2b.mask-request-host',
} as const;

/** Stands for the port in `maskRequestHost`. */
export const portPlaceholder: RegExp = /\$\{PORT\}/g;

export interface E2bAttributes {
  /** False: envd asks for no token. */
  readonly isSecure: boolean;
  /** Its ports answer everybody who knows their address. */
  readonly isPublic: boolean;
  /** `Host` that its servers see; `${PORT}` stands for the port. */
  readonly maskRequestHost?: string;
}

type Kept = Pick<SandboxInfo, 'attributes'>;

export function writeAttributes(wanted: E2bAttributes): Record<string, string> {
  return {
    [names.secure]: String(wanted.isSecure),
    [names.traffic]: String(wanted.isPublic),
    ...(wanted.maskRequestHost === undefined ? {} : { [names.host]: wanted.maskRequestHost }),
  };
}

/** Sandboxes of other doors are secure, and their ports closed. */
export function readAttributes({ attributes = {} }: Kept): E2bAttributes {
  const host = attributes[names.host];
  return {
    isSecure: attributes[names.secure] !== 'false',
    isPublic: attributes[names.traffic] === 'true',
    ...(host === undefined ? {} : { maskRequestHost: host }),
  };
}

/** Whether envd asks for a token. */
export const isSecure = (sandbox: Kept): boolean => readAttributes(sandbox).isSecure;
