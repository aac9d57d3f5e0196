import { formatMs } from '../gate/format.ts';
import type { Result } from '../record/result.ts';
import { lanesOf, mergedSeries } from '../report/figures.ts';
import type { Probe } from './bisect.ts';

/** What a rate must hold. Shares are 0–1 of the requests sent. */
export interface CapacityGoal {
  readonly p99Ms: number;
  readonly maxFailedShare: number;
  readonly maxRefusedShare: number;
}

/** Judges one run of a capacity search. */
export function judgeProbe(ratePerSecond: number, result: Result, goal: CapacityGoal): Probe {
  const all = lanesOf(result).find(({ kind }) => kind === 'all')?.durations;
  const p99Ms = all?.trustedMs(99) ?? null;
  const { ok = 0, refused = 0, failed = 0, timeout = 0 } = result.outcomes;
  const sent = Math.max(1, ok + refused + failed + timeout);
  const reasons: string[] = result.verdict.reasons.filter((reason) => !reason.startsWith('threshold'));
  if (p99Ms === null) reasons.push(`too few answers for a p99: ${all?.count ?? 0}`);
  else if (p99Ms > goal.p99Ms) reasons.push(`p99 ${formatMs(p99Ms)} is above ${formatMs(goal.p99Ms)}`);
  if ((failed + timeout) / sent > goal.maxFailedShare)
    reasons.push(`${failed + timeout} of ${sent} requests failed`);
  if (refused / sent > goal.maxRefusedShare) reasons.push(`${refused} of ${sent} requests were refused`);
  return {
    ratePerSecond,
    isSustained: reasons.length === 0,
    reasons,
    p99Ms,
    limitedBy: reasons.length === 0 ? '' : findLimit(result),
  };
}

const refusalMeanings: Readonly<Record<string, string>> = {
  node_at_capacity: 'the budget of the node (memory or machines)',
  queue_full: 'the size of the pool (`pool.max`): every machine was busy and the queue full',
  queue_timeout: 'the size of the pool (`pool.max`): callers waited too long for a machine',
  rate_limited: 'the rate limit of the template or key',
  quota_exceeded: 'the quota of the key',
  version_unavailable: 'a version that was being rebuilt',
};

/**
 * What limited a run, best evidence first: the generator itself, what admission says when it refuses, the host's cores,
 * then the phase in which answers spent their time.
 */
function findLimit(result: Result): string {
  if (result.verdict.reasons.some((reason) => reason.startsWith('the generator')))
    return 'the load generator, not the server';
  const refusal = result.errors.find(({ outcome }) => outcome === 'refused');
  if (refusal !== undefined) {
    const code = refusal.code.slice(refusal.code.indexOf('/') + 1);
    return refusalMeanings[code] ?? `admission (${refusal.code})`;
  }
  const cpu = Math.max(0, ...result.resources.map((sample) => sample.values.cpu_cores ?? 0));
  if (result.environment.isSameHost && cpu >= 0.9 * result.environment.cores) {
    return `the host's CPU: ${cpu.toFixed(1)} of ${result.environment.cores} cores in use, the generator's share included`;
  }
  const failure = result.errors.find(({ outcome }) => outcome === 'failed');
  if (failure !== undefined) return `failures (${failure.code})`;
  const [largest] = (['queue', 'restore', 'exec'] as const)
    .map((phase) => ({ phase, durations: mergedSeries(result, phase) }))
    .map(({ phase, durations }) => ({
      phase,
      totalMs: durations.count === 0 ? 0 : durations.meanMs * durations.count,
    }))
    .sort((a, b) => b.totalMs - a.totalMs);
  if (largest === undefined || largest.totalMs === 0)
    return 'unknown: the server names no phases and refused nothing';
  return {
    queue: 'waiting for a machine (queue): more machines or more ready ones would help',
    restore: 'making machines (restore): a larger floor of ready machines would help',
    exec: 'the function itself (exec)',
  }[largest.phase];
}
