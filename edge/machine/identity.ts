import { createHash, randomBytes } from 'node:crypto';
import { GatewayError, type MachineId } from '../../sdk/index.ts';
import type { ResumeRequest, SandboxChannel } from '../guest/index.ts';
import type { AcceleratorVerdict } from '../vmm/port.ts';

/** How far a guest's wall clock may be from the host's when its first request comes. */
const maxClockSkewMs = 50;
/** The first round trip after a restore is slow (cold translation cache), so the step is repeated while it was too old. */
const clockAttempts = 20;
/** What a greeting takes to be taken up by a guest whose translation cache is cold, as it is after a restore under emulation (measured). */
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

/** How far ahead the clock is set while a restored guest is greeted (`ConnectOptions.wake`). */
export function wakeFor(accelerator: AcceleratorVerdict['accelerator']): { readonly leadMs: number } {
  return { leadMs: accelerator === 'tcg' ? emulatedLeadMs : 0 };
}

/**
 * Clock, entropy and identity, in one round trip, after the last pause and before the first request. Repeats the step
 * until the clock is within 50 ms.
 * @throws GatewayError `restore_failed` when a step fails or the clock can't be brought within bounds
 */
export async function resumeGuest(
  channel: SandboxChannel,
  identity: { readonly hostname: string; readonly machineId: string },
  options: { readonly signal: AbortSignal; readonly token?: string },
): Promise<void> {
  const step = (leadMs: number) => {
    const request: ResumeRequest = {
      ...identity,
      wallClockMs: Date.now() + leadMs,
      entropy: randomBytes(64),
      ...(options.token === undefined ? {} : { token: options.token }),
    };
    return channel.resume(request, { signal: options.signal });
  };
  let skewMs = 0;
  // The channel reports the worse of two bounds; aiming at the middle of the last round trip halves what it can be.
  let leadMs = 0;
  for (let attempt = 0; attempt < clockAttempts; attempt++) {
    const report = await step(leadMs);
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
