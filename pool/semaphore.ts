/** Bounds how many VMMs of a node are being started or loaded at once, across all pools. */

/** `live`: an invocation waits for it. `refill`: nobody does. */
export type RestorePriority = 'live' | 'refill';

/** A place in the line. */
export interface PermitRequest {
  /** A refill that an invocation now waits for: moves it behind the live ones already in line. */
  promote(): void;
  /** Leaves the line; without effect once granted. */
  cancel(): void;
}

export interface RestoreSemaphore {
  /**
   * Calls `onGrant` once, at once or later, with a function that gives the permit back (idempotent). Live requests
   * come first, each priority first-come.
   */
  request(priority: RestorePriority, onGrant: (release: () => void) => void): PermitRequest;
  stats(): { readonly limit: number; readonly inUse: number; readonly live: number; readonly refill: number };
}

interface Entry {
  readonly onGrant: (release: () => void) => void;
}

/**
 * `limit`: permits at once (at least 1). Refill may hold all but one of them, so that a live restore never waits
 * behind primings, which take ten times as long as a load (DESIGN section 4).
 */
export function createRestoreSemaphore(options: { readonly limit: number }): RestoreSemaphore {
  const { limit } = options;
  const refillLimit = Math.max(1, limit - 1);
  const lines = { live: new Set<Entry>(), refill: new Set<Entry>() };
  const held = { live: 0, refill: 0 };

  function grant(priority: RestorePriority, entry: Entry): void {
    lines[priority].delete(entry);
    held[priority] += 1;
    let isHeld = true;
    entry.onGrant(() => {
      if (!isHeld) return;
      isHeld = false;
      held[priority] -= 1;
      pump();
    });
  }

  function pump(): void {
    while (held.live + held.refill < limit) {
      const [live] = lines.live;
      if (live !== undefined) {
        grant('live', live);
        continue;
      }
      const [refill] = lines.refill;
      if (refill === undefined || held.refill >= refillLimit) return;
      grant('refill', refill);
    }
  }

  return {
    request(priority, onGrant) {
      const entry: Entry = { onGrant };
      lines[priority].add(entry);
      pump();
      return {
        promote() {
          if (!lines.refill.delete(entry)) return;
          lines.live.add(entry);
          pump();
        },
        cancel() {
          lines.live.delete(entry);
          lines.refill.delete(entry);
        },
      };
    },
    stats: () => ({
      limit,
      inUse: held.live + held.refill,
      live: lines.live.size,
      refill: lines.refill.size,
    }),
  };
}
