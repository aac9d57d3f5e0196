/** New sandboxes: a machine, and the record that makes a sandbox of it. */
import type { CreateSandboxRequest, NetworkChoice } from '../../sdk/index.ts';
import type { SandboxOrigin } from '../client/sandbox-port.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import { type Acquire, firstMachine } from './first-machine.ts';
import type { SandboxRecord } from './record.ts';
import type { SecretBox } from './sealed-secrets.ts';

export interface CreationDeps {
  readonly context: SandboxContext;
  readonly acquire: Acquire;
  readonly secrets: SecretBox;
}

/** The sandbox exists once its record is on the medium; on failure its machine is gone. Throws what {@link firstMachine} throws. */
export async function createSandbox(
  { context, acquire, secrets: box }: CreationDeps,
  origin: SandboxOrigin,
  request: CreateSandboxRequest,
  options: { readonly signal: AbortSignal; readonly network: NetworkChoice | null },
): Promise<Entry> {
  const { live, ...facts } = await firstMachine(context, acquire, origin, options);
  const now = context.clock.now();
  const { deadlineMs, onTimeout, autoResume, metadata, env, secrets, attributes } = request;
  const record: SandboxRecord = {
    ...facts,
    ...{ deadlineMs, onTimeout, autoResume, metadata, env, secretNames: Object.keys(secrets) },
    ...(attributes === undefined ? {} : { attributes }),
    ...{ id: live.id, sealedSecrets: box.seal(live.id, secrets), endedBefore: [] },
    state: 'running',
    createdAt: now,
    startedAt: now,
    deadlineAt: now + deadlineMs,
    generation: 1,
    termination: null,
    machine: { id: live.id, channelToken: live.channelToken },
    pausedAs: null,
  };
  const data = { template: record.origin.template, generation: 1 };
  try {
    context.store.apply({ sandboxes: [record], events: [{ sandbox: record.id, type: 'created', data }] });
  } catch (error) {
    await live.end('not written down');
    throw error;
  }
  return context.adopt(record, live, origin.kind === 'version' ? 'fresh' : 'copied');
}
