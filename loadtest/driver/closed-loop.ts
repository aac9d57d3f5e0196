import type { Launcher } from './open-loop.ts';

/**
 * Keeps `concurrency` requests open until `durationMs` passed: the next is sent when one settles.
 *
 * This is not how traffic arrives. A stalled server stops the generator too, so the waits of everybody who would have
 * come meanwhile are missing (coordinated omission). It answers "how fast can it go", never "how long do callers
 * wait", and every report of such a run says so.
 */
export async function driveClosedLoop(
  deps: {
    readonly launcher: Launcher & { onSettled(callback: () => void): void };
    readonly pickTarget: () => number;
    readonly now: () => number;
  },
  options: { readonly concurrency: number; readonly durationMs: number; readonly signal: AbortSignal },
): Promise<void> {
  const { launcher, now } = deps;
  await new Promise<void>((resolve) => {
    let sequence = 0;
    let isEnded = false;
    const refill = () => {
      const nowMs = now();
      if (nowMs >= options.durationMs || options.signal.aborted) return end();
      if (launcher.inFlight >= options.concurrency) return;
      launcher.launch({
        sequence: sequence++,
        target: deps.pickTarget(),
        workMs: 0,
        intendedMs: nowMs,
        sentMs: nowMs,
      });
    };
    const end = () => {
      if (isEnded) return;
      isEnded = true;
      clearTimeout(timer);
      options.signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, Math.max(0, options.durationMs - now()));
    options.signal.addEventListener('abort', end);
    // One refill per settled request keeps the number open constant; the turn in between lets sockets be read.
    launcher.onSettled(() => {
      if (!isEnded) setImmediate(refill);
    });
    for (let slot = 0; slot < options.concurrency; slot++) refill();
  });
}
