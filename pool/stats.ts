/** What a pool counts about itself: plain numbers, cheap to copy. */
import type { ErrorCode, StartType, VersionDigest } from '../sdk/index.ts';
import { createMovingAverage } from './averages.ts';
import type { FailedStage } from './bring-up.ts';
import type { SizingDecision } from './sizing.ts';
import type { Slot } from './slot.ts';

export interface PoolStats {
  readonly digest: VersionDigest;
  readonly isDraining: boolean;
  /** Machines by state; together they are `total`, which never exceeds `max`. */
  readonly machines: {
    readonly spawning: number;
    readonly blank: number;
    /** Being loaded, or in line for it. */
    readonly restoring: number;
    readonly ready: number;
    readonly waking: number;
    readonly serving: number;
    readonly disposing: number;
  };
  readonly total: number;
  readonly max: number;
  /** Leases out now. */
  readonly leased: number;
  /** Acquires without a machine now. */
  readonly waiting: number;
  /** Leases granted, by start type. */
  readonly starts: Readonly<Record<StartType, number>>;
  readonly spawns: number;
  readonly restores: number;
  readonly wakes: number;
  readonly failures: Readonly<Record<FailedStage, number>>;
  /** Epoch milliseconds; the message is for operators. */
  readonly lastFailure: { readonly at: number; readonly stage: FailedStage; readonly message: string } | null;
  /** Acquires refused, by code. */
  readonly refusals: Readonly<Partial<Record<ErrorCode, number>>>;
  /** Machines discarded, by reason. */
  readonly discards: Readonly<Record<string, number>>;
  /** Those of them that a policy took while they were fine: TTLs, `maxInvocations`, surplus, shedding, making room. */
  readonly evictions: number;
  /** Defects of the pool that were caught; anything but 0 is a bug. */
  readonly defects: number;
  readonly highWater: { readonly total: number; readonly leased: number; readonly waiting: number };
  /** Moving averages in milliseconds; null before the first sample. */
  readonly averages: {
    readonly serviceMs: number | null;
    readonly queueMs: number | null;
    readonly spawnMs: number | null;
    readonly restoreMs: number | null;
    readonly wakeMs: number | null;
  };
  readonly sizing: SizingDecision;
}

/** Share of leases that found a machine ready or reused, 0 to 1; null before the first. */
export function hitRate(starts: PoolStats['starts']): number | null {
  const hits = starts.ready + starts.reused;
  const all = hits + starts.restored + starts.spawned;
  return all === 0 ? null : hits / all;
}

const evictionReasons = new Set([
  'idle',
  'lifetime',
  'max_invocations',
  'surplus',
  'shed',
  'evicted',
  'over_max',
]);
/** Distinct discard reasons kept; holders may invent reasons, and the map must not grow with them. */
const reasonsKept = 64;

/** The counters behind {@link PoolStats}. */
export class PoolCounters {
  readonly starts: Record<StartType, number> = { ready: 0, restored: 0, spawned: 0, reused: 0 };
  readonly failures: Record<FailedStage, number> = {
    spawn: 0,
    restore: 0,
    wake: 0,
    gone: 0,
    stale: 0,
    dispose: 0,
  };
  readonly refusals: Partial<Record<ErrorCode, number>> = {};
  readonly discards = new Map<string, number>();
  readonly highWater = { total: 0, leased: 0, waiting: 0 };
  readonly service = createMovingAverage();
  readonly queue = createMovingAverage();
  readonly work = {
    spawn: createMovingAverage(),
    restore: createMovingAverage(),
    wake: createMovingAverage(),
  };
  lastFailure: PoolStats['lastFailure'] = null;
  readonly done = { spawn: 0, restore: 0, wake: 0 };
  evictions = 0;
  defects = 0;
  leased = 0;

  landed(operation: 'spawn' | 'restore' | 'wake', durationMs: number): void {
    this.done[operation] += 1;
    this.work[operation].add(durationMs);
  }

  refused(code: ErrorCode): void {
    this.refusals[code] = (this.refusals[code] ?? 0) + 1;
  }

  discarded(reason: string): void {
    const key = this.discards.has(reason) || this.discards.size < reasonsKept ? reason : 'other';
    this.discards.set(key, (this.discards.get(key) ?? 0) + 1);
    if (evictionReasons.has(reason)) this.evictions += 1;
  }

  failed(stage: FailedStage, error: unknown, at: number): void {
    this.failures[stage] += 1;
    this.lastFailure = { at, stage, message: error instanceof Error ? error.message : String(error) };
  }

  /** Raises the high-water marks. */
  mark(total: number, waiting: number): void {
    this.highWater.total = Math.max(this.highWater.total, total);
    this.highWater.leased = Math.max(this.highWater.leased, this.leased);
    this.highWater.waiting = Math.max(this.highWater.waiting, waiting);
  }

  snapshot(
    now: Pick<PoolStats, 'digest' | 'isDraining' | 'max' | 'waiting' | 'sizing'>,
    slots: Iterable<Slot>,
  ): PoolStats {
    const machines = { spawning: 0, blank: 0, restoring: 0, ready: 0, waking: 0, serving: 0, disposing: 0 };
    let total = 0;
    for (const { state } of slots) {
      total += 1;
      if (state.kind === 'queued') machines.restoring += 1;
      else if (state.kind !== 'disposed') machines[state.kind] += 1;
    }
    return {
      ...now,
      machines,
      total,
      leased: this.leased,
      starts: { ...this.starts },
      spawns: this.done.spawn,
      restores: this.done.restore,
      wakes: this.done.wake,
      failures: { ...this.failures },
      lastFailure: this.lastFailure,
      refusals: { ...this.refusals },
      discards: Object.fromEntries(this.discards),
      evictions: this.evictions,
      defects: this.defects,
      highWater: { ...this.highWater },
      averages: {
        serviceMs: this.service.value() ?? null,
        queueMs: this.queue.value() ?? null,
        spawnMs: this.work.spawn.value() ?? null,
        restoreMs: this.work.restore.value() ?? null,
        wakeMs: this.work.wake.value() ?? null,
      },
      sizing: now.sizing,
    };
  }
}
