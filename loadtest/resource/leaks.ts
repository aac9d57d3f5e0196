import type { PoolInfo } from '../../sdk/index.ts';
import type { NodeApi } from './node-view.ts';

/** What a server held at one instant. */
export interface Holdings {
  readonly machines: number;
  /** Machines at work and callers in queues. */
  readonly serving: number;
  readonly waiting: number;
  /** Machines which the pools want at rest. */
  readonly floor: number;
}

/** The outcome of a leak check. `leaked` is empty when the server went back to what it held, or to its floor. */
export interface LeakReport {
  readonly before: Holdings | null;
  readonly after: Holdings | null;
  readonly waitedMs: number;
  readonly leaked: readonly string[];
}

const pollMs = 500;

/** What the server holds now; `null` when it doesn't say. */
export async function takeHoldings(api: NodeApi): Promise<Holdings | null> {
  const { machines, pools } = await api.view();
  if (machines === null || pools === null) return null;
  const sum = (pick: (pool: PoolInfo) => number) => pools.reduce((total, pool) => total + pick(pool), 0);
  return {
    machines: machines.length,
    serving: sum((pool) => pool.serving),
    waiting: sum((pool) => pool.waiting),
    floor: sum((pool) => pool.target.ready + pool.target.blank),
  };
}

/**
 * Waits until the server holds no more than before the run, or than its pools' floor, and names what it still holds
 * after `settleMs`. Files and network namespaces are out of sight over HTTP; `snapgate doctor` looks at those.
 */
export async function checkLeaks(
  deps: { readonly api: NodeApi; readonly sleep: (ms: number) => Promise<void> },
  before: Holdings | null,
  options: { readonly settleMs: number },
): Promise<LeakReport> {
  let waitedMs = 0;
  for (;;) {
    const after = await takeHoldings(deps.api);
    const leaked = compareHoldings(before, after);
    if (leaked.length === 0 || waitedMs >= options.settleMs) return { before, after, waitedMs, leaked };
    await deps.sleep(pollMs);
    waitedMs += pollMs;
  }
}

function compareHoldings(before: Holdings | null, after: Holdings | null): string[] {
  if (before === null || after === null)
    return ['the server did not say what it holds, so leaks can’t be seen'];
  const leaked: string[] = [];
  const allowed = Math.max(before.machines, after.floor);
  if (after.machines > allowed) leaked.push(`${after.machines} machines, expected at most ${allowed}`);
  if (after.serving > before.serving)
    leaked.push(`${after.serving} machines still at work, ${before.serving} before`);
  if (after.waiting > before.waiting)
    leaked.push(`${after.waiting} callers still queued, ${before.waiting} before`);
  return leaked;
}
