/** Lets a caller into a sandbox, waking one that sleeps where that was asked for. */
import { GatewayError, isGatewayError, type SandboxInfo } from '../../sdk/index.ts';
import type { SandboxUse } from '../client/sandbox-port.ts';
import type { Entry } from './entry.ts';

/** How often a use looks again at a sandbox that changed between two looks. */
const attempts = 5;

export interface UseDeps {
  readonly info: (entry: Entry) => SandboxInfo;
  readonly resume: (entry: Entry, options: { readonly signal: AbortSignal }) => Promise<unknown>;
}

/** @throws GatewayError `conflict` (paused, and not to be woken), `version_unavailable` (in transition), `cancelled`, or why it ended */
export async function enter(deps: UseDeps, entry: Entry, signal: AbortSignal): Promise<SandboxUse> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    if (entry.state === 'paused' && !entry.isBusy) await wake(deps, entry, signal);
    const use = await entry.gate.enter(signal);
    const { live } = entry;
    if (live === null) {
      use.release();
      entry.requireAlive();
      continue;
    }
    return {
      machine: live.id,
      sandbox: deps.info(entry),
      channel: live.channel,
      signal: use.signal,
      env: { ...entry.record.origin.definition.env, ...entry.record.env, ...entry.secrets },
      tunnel: (port) => live.channel.tunnel(port, { signal: AbortSignal.any([signal, use.signal]) }),
      [Symbol.dispose]: () => use.release(),
    };
  }
  throw new GatewayError('version_unavailable', 'the sandbox is being paused and resumed', {
    component: 'edge',
    retryAfterSeconds: 1,
  });
}

/** Of several that come at once, one resumes it and the others wait at the gate. */
async function wake(deps: UseDeps, entry: Entry, signal: AbortSignal): Promise<void> {
  if (!entry.record.autoResume)
    throw new GatewayError('conflict', `sandbox ${entry.record.id} is paused`, { component: 'edge' });
  // Whoever goes away must not stop it for the others.
  const { signal: unbound } = new AbortController();
  await deps.resume(entry, { signal: unbound }).catch((error: unknown) => {
    if (!isGatewayError(error, 'conflict')) throw error;
  });
  signal.throwIfAborted();
}
