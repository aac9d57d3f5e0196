/** From E2B's description of a sandbox to ours. */

import type { z } from 'zod';
import { type CreateSandboxRequest, GatewayError, type NetworkChoice } from '../../../sdk/index.ts';
import { writeAttributes } from '../attributes.ts';
import type { NewSandbox, networkUpdateSchema } from './schemas.ts';

const bad = (message: string, field: string) => new GatewayError('invalid_request', message, { field });

/** What the node is asked for. @throws GatewayError `invalid_request` for fields that contradict each other */
export function toCreateRequest(wanted: NewSandbox): {
  readonly request: CreateSandboxRequest;
  readonly network: NetworkChoice | undefined;
} {
  const { metadata, envVars, timeout, secure, autoPause, autoPauseMemory, autoResume, network } = wanted;
  const pauses = autoPause === true;
  const resumes = autoResume?.enabled === true;
  if (autoPauseMemory === false && !pauses)
    throw bad('"autoPauseMemory": false needs "autoPause"', 'autoPauseMemory');
  if (autoPauseMemory === false && resumes) {
    throw bad('without its memory a sandbox is resumed by connect only, not by traffic', 'autoPauseMemory');
  }
  if (autoPauseMemory === false)
    throw bad('"autoPauseMemory": false is not supported yet', 'autoPauseMemory');
  if (resumes && !pauses) throw bad('"autoResume" needs "autoPause"', 'autoResume');
  return {
    request: {
      deadlineMs: Math.max(1, timeout) * 1000,
      onTimeout: pauses ? 'pause' : 'kill',
      autoResume: resumes,
      metadata: metadata ?? {},
      env: envVars ?? {},
      secrets: {},
      attributes: writeAttributes({
        isSecure: secure !== false,
        isPublic: network?.allowPublicTraffic !== false,
        ...(network?.maskRequestHost === undefined ? {} : { maskRequestHost: network.maskRequestHost }),
      }),
    },
    network: toNetworkChoice({ ...network, allow_internet_access: wanted.allow_internet_access }),
  };
}

/**
 * Rules of its own; undefined when nothing but the usual is asked for: what is usual is up to the template, which may have no
 * network card at all.
 */
export function toNetworkChoice({
  allowOut,
  denyOut,
  allow_internet_access,
}: Pick<z.infer<typeof networkUpdateSchema>, 'allowOut' | 'denyOut' | 'allow_internet_access'>):
  | NetworkChoice
  | undefined {
  const allowInternetAccess = allow_internet_access ?? undefined;
  if (allowOut === undefined && denyOut === undefined && allowInternetAccess !== false) return undefined;
  return {
    kind: 'e2b',
    ...(allowOut === undefined ? {} : { allowOut }),
    ...(denyOut === undefined ? {} : { denyOut }),
    ...(allowInternetAccess === undefined ? {} : { allowInternetAccess }),
  };
}
