/** What a VMM really holds in memory, and what of it is the guest's RAM, QEMU's translation cache, and QEMU itself. */
import { readFile } from 'node:fs/promises';

/** All in bytes. */
export interface MemoryUse {
  /** The mapping of the memory file. */
  readonly ram: {
    /** Pages that only this VMM has: what its guest dirtied, including what is swapped out. */
    readonly privateBytes: number;
    /** Resident pages of the mapping, private or from the shared page cache. */
    readonly residentBytes: number;
    /** Resident pages, each divided by the number of processes that map it (PSS). */
    readonly proportionalBytes: number;
  };
  /** Translated code (emulation only): private, writable and executable. */
  readonly translationCacheBytes: number;
  /** All other private memory of the VMM: heap, stacks, device state, relocated libraries. */
  readonly overheadBytes: number;
  /** PSS of the whole process. */
  readonly proportionalBytes: number;
}

interface Mapping {
  readonly permissions: string;
  readonly path: string;
  /** Values in bytes by smaps' own names. */
  readonly fields: ReadonlyMap<string, number>;
}

const headerPattern = /^[0-9a-f]+-[0-9a-f]+ (\S{4}) [0-9a-f]+ \S+ \d+\s*(.*)$/;
const fieldPattern = /^([A-Za-z_]+):\s+(\d+) kB$/;

function* mappings(smaps: string): Generator<Mapping> {
  let current: (Mapping & { fields: Map<string, number> }) | null = null;
  for (const line of smaps.split('\n')) {
    const field = fieldPattern.exec(line);
    if (field !== null) {
      current?.fields.set(field[1] ?? '', Number(field[2]) * 1024);
      continue;
    }
    const header = headerPattern.exec(line);
    if (header === null) continue;
    if (current !== null) yield current;
    current = { permissions: header[1] ?? '', path: header[2] ?? '', fields: new Map() };
  }
  if (current !== null) yield current;
}

/** Sums up the text of `/proc/PID/smaps`. Pure. */
export function parseMemoryUse(smaps: string, memoryPath: string): MemoryUse {
  const ram = { privateBytes: 0, residentBytes: 0, proportionalBytes: 0 };
  let translationCacheBytes = 0;
  let overheadBytes = 0;
  let proportionalBytes = 0;
  for (const { permissions, path, fields } of mappings(smaps)) {
    const bytes = (name: string) => fields.get(name) ?? 0;
    proportionalBytes += bytes('Pss');
    const swapped = bytes('Swap');
    if (path === memoryPath) {
      ram.privateBytes += bytes('Anonymous') + swapped;
      ram.residentBytes += bytes('Rss');
      ram.proportionalBytes += bytes('Pss');
    } else if (permissions === 'rwxp' && path === '') {
      translationCacheBytes += bytes('Private_Dirty') + swapped;
    } else {
      overheadBytes += bytes('Private_Dirty') + swapped;
    }
  }
  return { ram, translationCacheBytes, overheadBytes, proportionalBytes };
}

/** Reads it for a live VMM (`pid` and `memoryPath` as in the VMM port). Rejects with `ENOENT`/`ESRCH` when it is gone. */
export async function readMemoryUse(pid: number, memoryPath: string): Promise<MemoryUse> {
  return parseMemoryUse(await readFile(`/proc/${pid}/smaps`, 'utf8'), memoryPath);
}
