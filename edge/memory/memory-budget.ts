/**
 * The host's memory as admission sees it. What machines really hold is what the host has no longer, so what is left (the
 * kernel's `MemAvailable`) decides, less what machines admitted a moment ago have yet to take.
 */
import { readFileSync } from 'node:fs';
import type { AdmissionVerdict, Admit } from '../../pool/index.ts';
import { type Clock, GatewayError } from '../../sdk/index.ts';

export interface MemoryBudget {
  /** For live machines down to the reserve, for refills down to twice as much. Grants where the host does not tell. */
  readonly admit: Admit;
  /** Whether idle machines should be given back: less is left than the reserve. */
  readonly isShort: () => boolean;
}

export interface MemoryBudgetOptions {
  /** Kept for the growth of machines that serve, bytes. */
  readonly reserveBytes: number;
}

/** What a new machine takes until it shows in `MemAvailable`: a VMM and the pages its guest first writes. */
const machineBytes = 64 * 2 ** 20;
/** How long that takes. */
const settleMs = 3_000;
/** `/proc/meminfo` costs some ten microseconds, and is asked at every bring-up. */
const keptMs = 100;
const mib = (bytes: number) => Math.round(bytes / 2 ** 20);

/** `availableBytes` answers null where it can't be known. */
export function createMemoryBudget(
  deps: { readonly clock: Clock; readonly availableBytes: () => number | null },
  { reserveBytes }: MemoryBudgetOptions,
): MemoryBudget {
  const { clock } = deps;
  let grantedAt: number[] = [];
  let seen: { readonly at: number; readonly bytes: number | null } | null = null;

  const left = (): number => {
    const now = clock.monotonic();
    if (seen === null || now - seen.at >= keptMs) seen = { at: now, bytes: deps.availableBytes() };
    grantedAt = grantedAt.filter((at) => now - at < settleMs);
    return seen.bytes === null ? Number.POSITIVE_INFINITY : seen.bytes - grantedAt.length * machineBytes;
  };
  return {
    isShort: () => left() < reserveBytes,
    admit(kind): AdmissionVerdict {
      const bytes = left();
      const needed = machineBytes + (kind === 'live' ? 1 : 2) * reserveBytes;
      if (bytes >= needed) {
        grantedAt.push(clock.monotonic());
        return { kind: 'granted' };
      }
      const message = `${Math.max(0, mib(bytes))} MiB of memory are left on this node, ${mib(needed)} are needed`;
      const extra = { limit: mib(reserveBytes), used: Math.max(0, mib(bytes)), knob: 'memoryReserveMiB' };
      return {
        kind: 'refused',
        error: new GatewayError('node_at_capacity', message, { component: 'edge', extra }),
      };
    },
  };
}

/** `MemAvailable` of this host, bytes; null where there is none. */
export function readAvailableBytes(): number | null {
  try {
    const [, kibibytes] = /^MemAvailable: +([0-9]+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8')) ?? [];
    return kibibytes === undefined ? null : Number(kibibytes) * 1024;
  } catch {
    return null;
  }
}
