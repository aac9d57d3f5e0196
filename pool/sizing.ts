/** How many ready machines a pool should hold: a floor, a ceiling, and demand between them. */
import type { Clock } from '../sdk/index.ts';
import { createMovingAverage, createRateWindow } from './averages.ts';

/** A size and why; shown by `/v1/pools`. */
export interface SizingDecision {
  readonly ready: number;
  /** `floor`: demand asks for no more. `demand`: it does. `holding`: it did a while ago. `ceiling`: it asks for more than `max`. */
  readonly because: 'floor' | 'demand' | 'holding' | 'ceiling';
  /** What Little's law gives now, before floor, ceiling and holding; a fraction of machines. */
  readonly wanted: number;
  /** Fresh machines taken per second, over the short and the long window. */
  readonly shortPerSecond: number;
  readonly longPerSecond: number;
  /** What it takes to put a new ready machine in place of a taken one. */
  readonly refillMs: number;
}

export interface Sizing {
  /** A fresh machine was taken by an invocation; reused ones don't drain the pool and aren't told. */
  taken(): void;
  /** A refill took this long, from nothing to ready. */
  refilled(durationMs: number): void;
  /** The size to hold now. */
  decide(bounds: { readonly floor: number; readonly ceiling: number }): SizingDecision;
}

export interface SizingOptions {
  readonly shortWindowMs?: number;
  readonly longWindowMs?: number;
  /** A size reached is held this long before it shrinks. */
  readonly holdMs?: number;
  /** Then it shrinks by one per step. */
  readonly stepMs?: number;
  /** Refill time to reckon with before the first measurement. */
  readonly assumedRefillMs?: number;
}

/**
 * Little's law gives the machines taken while one replacement is made, m = rate × refill time; arrivals bunch, so the
 * square root of m is held on top (about one standard deviation of a Poisson stream). The higher of two windows
 * counts: the short one sees a burst at once, the long one remembers it. The sum is rounded, not raised: raising would
 * have every single call to a rare template make a machine that nobody takes (in two simulated hours over 1,000 templates, 9,500
 * machines wasted for 0.4 % more hits).
 */
export function createDemandSizing(deps: { readonly clock: Clock }, options: SizingOptions = {}): Sizing {
  const { shortWindowMs = 5_000, longWindowMs = 60_000, holdMs = 30_000, stepMs = 10_000 } = options;
  const short = createRateWindow(shortWindowMs);
  const long = createRateWindow(longWindowMs);
  const refill = createMovingAverage();
  let held = 0;
  let shrinkAt = 0;

  /** Up at once; down by one per step, once the size has not been needed for a while. */
  function hold(wanted: number, now: number): number {
    if (wanted >= held) {
      held = wanted;
      shrinkAt = now + holdMs;
    } else if (now >= shrinkAt) {
      const steps = 1 + Math.floor((now - shrinkAt) / stepMs);
      held = Math.max(wanted, held - steps);
      shrinkAt += steps * stepMs;
    }
    return held;
  }

  return {
    taken() {
      const now = deps.clock.monotonic();
      short.add(now);
      long.add(now);
    },
    refilled: (durationMs) => refill.add(durationMs),
    decide({ floor, ceiling }) {
      const now = deps.clock.monotonic();
      const shortPerSecond = short.perSecond(now);
      const longPerSecond = long.perSecond(now);
      const refillMs = refill.value() ?? options.assumedRefillMs ?? 500;
      const mean = (Math.max(shortPerSecond, longPerSecond) * refillMs) / 1000;
      const wanted = mean + Math.sqrt(mean);
      const needed = Math.min(ceiling, Math.round(wanted));
      const size = Math.min(ceiling, hold(needed, now));
      const because =
        size <= floor ? 'floor' : wanted > ceiling ? 'ceiling' : size > needed ? 'holding' : 'demand';
      return {
        ready: Math.min(ceiling, Math.max(floor, size)),
        because,
        wanted,
        shortPerSecond,
        longPerSecond,
        refillMs,
      };
    },
  };
}

/** Holds the floor and nothing else. */
export function createFloorSizing(): Sizing {
  return {
    taken() {},
    refilled() {},
    decide: ({ floor }) => ({
      ready: floor,
      because: 'floor',
      wanted: 0,
      shortPerSecond: 0,
      longPerSecond: 0,
      refillMs: 0,
    }),
  };
}

/** The decision in a sentence, for people. */
export function describeSizing(decision: SizingDecision): string {
  const { ready, because, wanted, shortPerSecond, longPerSecond, refillMs } = decision;
  const demand = `${Math.max(shortPerSecond, longPerSecond).toFixed(2)}/s × ${Math.round(refillMs)} ms asks for ${wanted.toFixed(1)}`;
  switch (because) {
    case 'floor':
      return `${ready} ready: the floor; demand of ${demand}`;
    case 'demand':
      return `${ready} ready: demand of ${demand}`;
    case 'holding':
      return `${ready} ready: held from a while ago; demand of ${demand}`;
    case 'ceiling':
      return `${ready} ready: the ceiling; demand of ${demand}`;
  }
}
