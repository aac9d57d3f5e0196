import { machineIdentity, resumeGuest } from '../machine/identity.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import type { LiveMachine } from './live-machine.ts';

const stepMs = 5_000;

/**
 * A guest that stood still and goes on is behind by that time: its clock is set, its name stays. That this fails is logged and no
 * more, since nothing of the sandbox is lost by it.
 */
export async function stepClock(context: SandboxContext, entry: Entry, live: LiveMachine): Promise<void> {
  const identity = machineIdentity(entry.record.origin.definition.name, live.id);
  try {
    await resumeGuest(live.channel, identity, { signal: AbortSignal.timeout(stepMs) });
  } catch (err) {
    context.log.warn({ err, 'sandbox.id': entry.record.id }, 'clock of a sandbox not set');
  }
}
