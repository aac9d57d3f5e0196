/** Cheap running figures: constant memory, no timers. */

/** An exponentially weighted mean over samples. */
export interface MovingAverage {
  add(sample: number): void;
  /** Undefined before the first sample. */
  value(): number | undefined;
}

/** `weight` of a new sample, 0–1; default 0.2 (about the last ten samples). */
export function createMovingAverage(weight = 0.2): MovingAverage {
  let mean: number | undefined;
  return {
    add(sample) {
      mean = mean === undefined ? sample : mean + weight * (sample - mean);
    },
    value: () => mean,
  };
}

/** Events per second over a window that forgets exponentially. */
export interface RateWindow {
  add(atMs: number): void;
  perSecond(atMs: number): number;
}

/** `windowMs`: age at which an event counts for 1/e. */
export function createRateWindow(windowMs: number): RateWindow {
  let weight = 0;
  let updatedAt = 0;
  const decayTo = (atMs: number) => {
    if (atMs > updatedAt) {
      weight *= Math.exp((updatedAt - atMs) / windowMs);
      updatedAt = atMs;
    }
  };
  return {
    add(atMs) {
      decayTo(atMs);
      weight += 1;
    },
    perSecond(atMs) {
      decayTo(atMs);
      return (weight * 1000) / windowMs;
    },
  };
}

/**
 * Whole seconds after which a refused caller has a fair chance: the line ahead of it, at the measured service time
 * over all places that serve. From 1 to 60; without a measurement a service is taken to last a second.
 */
export function retryAfterSeconds(ahead: number, serviceMs: number | undefined, places: number): number {
  const waitMs = ((ahead + 1) * (serviceMs ?? 1000)) / Math.max(1, places);
  return Math.min(60, Math.max(1, Math.ceil(waitMs / 1000)));
}
