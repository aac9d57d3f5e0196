/** Where in a VMM's address space its guest's RAM lies. */
import { readFile, stat } from 'node:fs/promises';
import { GatewayError } from '../../sdk/index.ts';

/** A range of a process's addresses; both in bytes, multiples of the page size. */
export interface RamMapping {
  readonly start: number;
  readonly bytes: number;
}

const linePattern = /^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+)/;

/**
 * The one private mapping of a file in the text of `/proc/PID/maps`; null when the file is not mapped whole, in order and
 * privately. The kernel may show one mapping in several parts. Devices are not compared, because some filesystems give
 * `stat` another number than the kernel shows here; a chance match of another file makes the ranges disagree. Pure.
 */
export function parseRamMapping(
  maps: string,
  file: { readonly inode: number; readonly bytes: number },
): RamMapping | null {
  let start: number | null = null;
  let end = 0;
  for (const line of maps.split('\n')) {
    const match = linePattern.exec(line);
    if (match === null || Number(match[5]) !== file.inode) continue;
    const [, from = '', to = '', permissions = '', offset = ''] = match;
    const first = Number.parseInt(from, 16);
    start ??= first;
    const isNext = end === 0 || first === end;
    if (permissions[3] !== 'p' || !isNext || Number.parseInt(offset, 16) !== first - start) return null;
    end = Number.parseInt(to, 16);
  }
  return start !== null && end - start === file.bytes ? { start, bytes: file.bytes } : null;
}

/**
 * Finds the mapping of a memory image in a live VMM.
 * @param memoryPath any path of the very file that the VMM was started with
 * @throws GatewayError `vmm_failed` when the VMM does not map that file whole and privately, or is gone
 */
export async function findRamMapping(pid: number, memoryPath: string): Promise<RamMapping> {
  const fail = (cause?: unknown) =>
    new GatewayError('vmm_failed', 'the VMM does not map the memory image privately', {
      component: 'edge',
      cause,
    });
  try {
    const { ino, size } = await stat(memoryPath);
    const mapping = parseRamMapping(await readFile(`/proc/${pid}/maps`, 'utf8'), {
      inode: ino,
      bytes: size,
    });
    if (mapping === null) throw fail();
    return mapping;
  } catch (error) {
    throw error instanceof GatewayError ? error : fail(error);
  }
}
