import { readFile } from 'node:fs/promises';
import type { GaugeName } from './gauges.ts';

/** Most machines whose `smaps_rollup` is read per sample: the kernel walks their page tables under a lock. */
const maxRollups = 64;

/** Figures of the host which the node API doesn't carry, read from `/proc` when the server runs on this host. */
export interface LocalHost {
  /** PSS and CPU of the processes, and the page cache; figures that can't be read are absent. */
  sample(pids: readonly number[]): Promise<Partial<Record<GaugeName, number>>>;
}

/** Reads Linux's `/proc`. `clock` is monotonic, in milliseconds. */
export function createLocalHost(deps: { readonly clock: () => number }): LocalHost {
  let before: { readonly atMs: number; readonly busy: number } | null = null;
  return {
    async sample(pids) {
      const values: Partial<Record<GaugeName, number>> = {};
      const meminfo = await readText('/proc/meminfo');
      const cached = kibibytes(meminfo, 'Cached');
      if (cached !== null) values.page_cache_bytes = cached;
      const pss = await readPss(pids);
      if (pss !== null) values.memory_pss_bytes = pss;
      const busy = cpuSeconds(await readText('/proc/stat'));
      const atMs = deps.clock();
      if (busy !== null) {
        if (before !== null && atMs > before.atMs) {
          values.cpu_cores = Math.max(0, (busy - before.busy) / ((atMs - before.atMs) / 1000));
        }
        before = { atMs, busy };
      }
      return values;
    },
  };
}

/** All PSS together; scaled up when there are more machines than are read. `null` when none can be read. */
async function readPss(pids: readonly number[]): Promise<number | null> {
  const read = pids.slice(0, maxRollups);
  let sum = 0;
  let found = 0;
  for (const pid of read) {
    const pss = kibibytes(await readText(`/proc/${pid}/smaps_rollup`), 'Pss');
    if (pss === null) continue;
    sum += pss;
    found += 1;
  }
  return found === 0 ? null : (sum * pids.length) / found;
}

/** Seconds that the host's cores were not idle, since boot. Linux counts in hundredths. */
function cpuSeconds(stat: string): number | null {
  const line = /^cpu +([0-9 ]+)$/m.exec(stat);
  if (line === null) return null;
  const [user, nice, system, , , irq, softirq, steal] = line[1]!.split(' ').map(Number);
  return ((user ?? 0) + (nice ?? 0) + (system ?? 0) + (irq ?? 0) + (softirq ?? 0) + (steal ?? 0)) / 100;
}

function kibibytes(text: string, name: string): number | null {
  const match = new RegExp(`^${name}: +([0-9]+) kB$`, 'm').exec(text);
  return match === null ? null : Number(match[1]) * 1024;
}

/** The file's text; empty when it is gone or may not be read. */
const readText = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '');
