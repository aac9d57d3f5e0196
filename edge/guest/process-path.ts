import { GatewayError } from '../../sdk/index.ts';

/** The agent's path of a process. Throws `invalid_request` for an id that no process can have. */
export function processPath(id: string): string {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(id))
    throw new GatewayError('invalid_request', 'a process id must match [A-Za-z0-9_-]{1,64}', { field: 'id' });
  return `/v1/processes/${id}`;
}
