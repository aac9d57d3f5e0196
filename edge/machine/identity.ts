import { createHash, randomBytes } from 'node:crypto';
import { GatewayError, type MachineId } from '../../sdk/index.ts';
import type { ResumeRequest, SandboxChannel } from '../guest/index.ts';

/** How far a guest's wall clock may be from the host's when its first request comes. */
const maxClockSkewMs = 50;
/** The first round trip after a restore is slow (cold translation cache), so the step is repeated while it was too old. */
const clockAttempts = 20;
/** About half of the first round trip after a restore under emulation, whose translation cache is cold (measured). */
const emulatedLeadMs = 20;
/** A round trip longer than this says nothing about the next. */
const maxLeadMs = 400;

/** What tells a clone from its siblings. Stable for the machine's life, so a parked machine keeps its name. */
export function machineIdentity(
  template: string,
  id: MachineId,
): { readonly hostname: string; readonly machineId: string } {
  return {
    hostname: `${template.slice(0, 40)}-${id.slice(-8)}`,
    machineId: createHash('sha256').update(`snapgate machine-id ${id}`).digest('hex').slice(0, 32),
  };
}

/**
 * Clock, entropy and identity, in one round trip, after the last pause and before the first request. Repeats the step
 * until the clock is within 50 ms. `isCold`: the first call after a restore under emulation.
 * @throws GatewayError `restore_failed` when a step fails or the clock can't be brought within bounds
 */
export async function resumeGuest(
  channel: SandboxChannel,
  identity: { readonly hostname: string; readonly machineId: string },
  options: { readonly signal: AbortSignal; readonly token?: string; readonly isCold?: boolean },
): Promise<void> {
  const step = (names: Partial<typeof identity>, leadMs: number) => {
    const request: ResumeRequest = {
      ...names,
      wallClockMs: Date.now() + leadMs,
      entropy: randomBytes(64),
      ...(options.token === undefined ? {} : { token: options.token }),
    };
    return channel.resume(request, { signal: options.signal });
  };
  // Under emulation the first call after a restore is slow (cold translation cache): it does only what can't wait, so that the
  // agent answers soon, and the second one steps the clock again within a short round trip.
  if (options.isCold === true) await step({}, emulatedLeadMs);
  let skewMs = 0;
  // The channel reports the worse of two bounds; aiming at the middle of the last round trip halves what it can be.
  let leadMs = 0;
  for (let attempt = 0; attempt < clockAttempts; attempt++) {
    const report = await step(identity, leadMs);
    skewMs = report.clockSkewMs;
    if (Math.abs(skewMs) <= maxClockSkewMs) return;
    leadMs = Math.round(Math.min(Math.abs(skewMs), maxLeadMs) / 2);
  }
  throw new GatewayError(
    'restore_failed',
    `the guest's clock is ${Math.round(skewMs)} ms off after ${clockAttempts} steps`,
    { component: 'guest' },
  );
}
