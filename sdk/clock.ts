/** Time as a collaborator, so that pools and schedules run under a virtual clock in tests and in the simulator. */
export interface Clock {
  /** Wall clock, epoch milliseconds. May step. */
  now(): number;
  /** Monotonic milliseconds with fraction; only differences mean anything. */
  monotonic(): number;
  /** Calls back once after `delayMs`; the answer cancels it (idempotent). Never keeps the process alive by itself. */
  schedule(delayMs: number, callback: () => void): () => void;
}

/** The real clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule(delayMs, callback) {
    const timer = setTimeout(callback, Math.min(delayMs, 2 ** 31 - 1));
    (timer as { unref?: () => void }).unref?.();
    return () => clearTimeout(timer);
  },
};
