/** The hold of one invocation, or one sandbox, on a machine. */
import type { StartType } from '../sdk/index.ts';
import type { PoolMachine } from './port.ts';

export type LeaseOutcome = 'reusable' | 'discard';

/**
 * The holder owns it and releases it exactly once, on every path; a second release is ignored. Left to
 * `await using`, it releases as `discard`, since nobody vouched for the machine.
 */
export interface Lease extends AsyncDisposable {
  readonly machine: PoolMachine;
  readonly start: StartType;
  /** Milliseconds waited for a machine to be free or for the restore to begin. */
  readonly queueMs: number;
  /** Milliseconds of that wait in which this machine was being spawned, restored or woken; 0 when reused. */
  readonly restoreMs: number;
  /** Settles when the machine ends under the lease. Never rejects. Releasing afterwards is still right. */
  readonly gone: Promise<{ readonly reason: string }>;
  /** `reason` is counted in stats for a discard; keep it to a small closed set of words. */
  release(outcome: LeaseOutcome, reason?: string): void;
}

/** `onRelease` is called once. */
export function createLease(
  facts: Pick<Lease, 'machine' | 'start' | 'queueMs' | 'restoreMs'>,
  onRelease: (outcome: LeaseOutcome, reason: string) => void,
): Lease {
  let isHeld = true;
  const release = (outcome: LeaseOutcome, reason: string) => {
    if (!isHeld) return;
    isHeld = false;
    onRelease(outcome, reason);
  };
  return {
    ...facts,
    gone: facts.machine.gone,
    release: (outcome, reason = 'by_holder') => release(outcome, reason),
    async [Symbol.asyncDispose]() {
      release('discard', 'dropped');
    },
  };
}
