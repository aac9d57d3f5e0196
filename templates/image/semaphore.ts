/** A bound on how many do something at once. */
export interface Semaphore {
  /** Waits its turn, first come first served; a waiter whose signal aborts leaves the queue. */
  acquire(options: { readonly signal: AbortSignal }): Promise<Disposable>;
}

/** `slots` may be held at once; disposing a held slot twice is harmless. */
export function createSemaphore(slots: number): Semaphore {
  let free = slots;
  const waiting: (() => void)[] = [];
  const hold = (): Disposable => {
    let isHeld = true;
    return {
      [Symbol.dispose]() {
        if (!isHeld) return;
        isHeld = false;
        const next = waiting.shift();
        if (next === undefined) free += 1;
        else next();
      },
    };
  };
  return {
    async acquire({ signal }) {
      signal.throwIfAborted();
      if (free > 0) {
        free -= 1;
        return hold();
      }
      const turn = Promise.withResolvers<void>();
      waiting.push(turn.resolve);
      const leave = (): void => {
        const index = waiting.indexOf(turn.resolve);
        if (index < 0) return;
        waiting.splice(index, 1);
        turn.reject(signal.reason);
      };
      signal.addEventListener('abort', leave, { once: true });
      try {
        await turn.promise;
      } finally {
        signal.removeEventListener('abort', leave);
      }
      return hold();
    },
  };
}
