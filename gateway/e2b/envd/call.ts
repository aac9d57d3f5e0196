/** What every handler of envd's protocol knows of its request. */
import { createContextKey } from '@connectrpc/connect';
import type { SandboxEdge } from '../../../edge/client/index.ts';
import type { Clock, SandboxId } from '../../../sdk/index.ts';
import type { Homes } from './homes.ts';

/** One request to one sandbox; who sends it has been let in. */
export interface EnvdCall {
  readonly edge: SandboxEdge;
  readonly id: SandboxId;
  /** Whose rights and home directory count. */
  readonly user: string;
  /** Nobody named the user, so the template may mean another one. */
  readonly isUsualUser: boolean;
  /** How often a stream without news says that it lives, milliseconds. */
  readonly keepAliveMs: number;
  readonly homes: Homes;
  readonly clock: Clock;
}

/** Where handlers of RPCs find it. */
export const callKey = createContextKey<EnvdCall | undefined>(undefined, { description: 'envd call' });

/** Breaks the answer of a call off: clients that know the sandbox's end by nothing else ask for its health then. */
export const cutKey = createContextKey<() => void>(() => {}, { description: 'cut off' });

/** User whose name no request says. */
const defaultUser = 'user';
const userPattern = /^[a-z_][a-z0-9_-]{0,31}$/;

/** The user of `Authorization: Basic base64("name:")`; null when that names nobody who can exist. */
export function userOf(authorization: string | undefined): string | null {
  if (authorization === undefined) return defaultUser;
  const match = /^basic +([A-Za-z0-9+/=]+) *$/i.exec(authorization);
  // A bearer token or whatever else is meant for somebody else.
  if (match === null) return defaultUser;
  const [name = ''] = Buffer.from(match[1] ?? '', 'base64')
    .toString('utf8')
    .split(':', 1);
  return checkedUser(name);
}

/** Empty: the default one. Null when nobody can have that name. */
export function checkedUser(name: string): string | null {
  if (name === '') return defaultUser;
  return userPattern.test(name) ? name : null;
}

const defaultKeepAliveMs = 90_000;

/** `Keepalive-Ping-Interval`, whole seconds. */
export function keepAliveOf(header: string | undefined): number {
  const seconds = /^[0-9]{1,5}$/.test(header ?? '') ? Number(header) : 0;
  return seconds >= 1 ? Math.min(seconds * 1000, defaultKeepAliveMs * 10) : defaultKeepAliveMs;
}
