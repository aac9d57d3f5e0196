/**
 * Looking at a sandbox without holding it. Whoever only watches (output, an exit, changes of files) must not delay a pause
 * or a fork until their drain deadline, and loses nothing by it: what is watched is kept inside the guest and is found again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxEdge, SandboxUse } from '../../edge/client/index.ts';
import { GatewayError, isGatewayError, type SandboxId } from '../../sdk/index.ts';

/** States from which a sandbox comes back by itself. A paused one is left asleep: watching is no reason to wake it. */
const goingOn = new Set(['running', 'resuming', 'snapshotting', 'rewinding']);
/** Cuts in a row after which the sandbox counts as broken. */
const maxCuts = 10;
const pauseMs = 50;

/** What is watched, and how to look at it. */
export interface Observation {
  readonly edge: SandboxEdge;
  readonly id: SandboxId;
  readonly signal: AbortSignal;
}

/**
 * Calls `look` with the sandbox's channel, and again with its next one when the channel was cut off while the sandbox goes on.
 * With `isAgain` somebody looked before, and this one too wakes nobody.
 * @throws GatewayError `version_unavailable` when the sandbox sleeps, and what `use` and `look` throw
 */
export async function observe<T>(
  { edge, id, signal }: Observation,
  look: (channel: SandboxUse['channel']) => Promise<T>,
  isAgain = false,
): Promise<T> {
  for (let cuts = 0; ; ) {
    if (isAgain || cuts > 0) await requireAwake(edge, id);
    try {
      const use = await edge.use(id, { signal });
      use[Symbol.dispose]();
      return await look(use.channel);
    } catch (error) {
      if (isGatewayError(error, 'conflict')) await requireAwake(edge, id, error);
      if (!isGatewayError(error, 'guest_unreachable') || signal.aborted) throw error;
      cuts += 1;
      if (cuts > maxCuts) throw error;
      await sleep(pauseMs * cuts, undefined, { signal });
    }
  }
}

/** An ended sandbox is left for `use` to tell of. */
async function requireAwake(edge: SandboxEdge, id: SandboxId, cause?: unknown): Promise<void> {
  const { state } = await edge.get(id);
  if (goingOn.has(state) || state === 'ended') return;
  throw new GatewayError('version_unavailable', `the sandbox is ${state}; look again when it runs`, {
    retryAfterSeconds: 1,
    cause,
  });
}
