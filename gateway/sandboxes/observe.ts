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
 * `look` tells by `onProgress` that this channel worked.
 * @throws GatewayError `version_unavailable` when the sandbox was put to sleep meanwhile, and what `use` and `look` throw
 */
export async function observe<T>(
  { edge, id, signal }: Observation,
  look: (channel: SandboxUse['channel'], onProgress: () => void) => Promise<T>,
): Promise<T> {
  let cuts = 0;
  for (;;) {
    const use = await edge.use(id, { signal });
    use[Symbol.dispose]();
    try {
      return await look(use.channel, () => {
        cuts = 0;
      });
    } catch (error) {
      cuts += 1;
      if (!isGatewayError(error, 'guest_unreachable') || cuts > maxCuts || signal.aborted) throw error;
      const { state } = await edge.get(id);
      if (!goingOn.has(state)) throw asleep(state, error);
      await sleep(pauseMs * cuts, undefined, { signal });
    }
  }
}

const asleep = (state: string, cause: unknown) =>
  new GatewayError('version_unavailable', `the sandbox is ${state}; look again when it runs`, {
    retryAfterSeconds: 1,
    cause,
  });
