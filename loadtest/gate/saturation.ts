/** Limits past which the generator, not the server, decided the figures. */
export interface GeneratorLimits {
  /** p99 of how late arrivals were sent, milliseconds. */
  readonly lagP99Ms: number;
  /** Share of scheduled arrivals that were never sent, 0–1. */
  readonly droppedRatio: number;
}

export const defaultGeneratorLimits: GeneratorLimits = { lagP99Ms: 5, droppedRatio: 0.01 };

/**
 * Reasons why a run's figures can't be trusted; empty when the schedule was kept. The p99 here needs no minimum of
 * samples: it errs towards failing.
 */
export function judgeGenerator(
  schedule: {
    readonly scheduled: number;
    readonly droppedInFlight: number;
    readonly droppedBehind: number;
    readonly lagP99Ms: number;
  },
  limits: GeneratorLimits,
): string[] {
  const reasons: string[] = [];
  if (schedule.scheduled === 0) reasons.push('the schedule has no arrival after the warm-up');
  if (schedule.lagP99Ms > limits.lagP99Ms) {
    reasons.push(
      `the generator was the bottleneck: schedule lag p99 ${schedule.lagP99Ms.toFixed(1)} ms, limit ${limits.lagP99Ms} ms`,
    );
  }
  const allowed = limits.droppedRatio * schedule.scheduled;
  if (schedule.droppedBehind > allowed) {
    reasons.push(
      `the generator was the bottleneck: ${schedule.droppedBehind} of ${schedule.scheduled} arrivals came too late to send`,
    );
  }
  if (schedule.droppedInFlight > allowed) {
    reasons.push(
      `the generator was the bottleneck: ${schedule.droppedInFlight} of ${schedule.scheduled} arrivals were dropped at the in-flight limit`,
    );
  }
  return reasons;
}
