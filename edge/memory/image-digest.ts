/**
 * A digest of a file's content that doesn't depend on where the file has holes, and skips what is zero. Memory images
 * are mostly holes; a copy on another node or filesystem may have them elsewhere.
 *
 * Definition: SHA-256 over, for each block of 64 KiB that is not all zero, its index (8 bytes, little-endian) and its
 * bytes, and at last the file's size (8 bytes, little-endian).
 */
import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

/** Where a file may have data, in order: `[offset, length]` in bytes. What lies between reads as zero. */
export type Extents = readonly (readonly [offset: number, length: number])[];

const blockBytes = 64 * 1024;
const blocksPerRead = 32;
const zeroBlock = Buffer.alloc(blockBytes);

/** Runs of blocks that may hold data, as `[first block, count]`, none longer than one read. Pure. */
export function blockRuns(extents: Extents, fileBytes: number): [first: number, count: number][] {
  const runs: [number, number][] = [];
  const endBlock = Math.ceil(fileBytes / blockBytes);
  let next = 0;
  for (const [offset, length] of extents) {
    if (length <= 0) continue;
    const end = Math.min(endBlock, Math.ceil((offset + length) / blockBytes));
    next = Math.max(next, Math.floor(offset / blockBytes));
    for (; next < end; next += Math.min(blocksPerRead, end - next))
      runs.push([next, Math.min(blocksPerRead, end - next)]);
  }
  return runs;
}

/**
 * Digests a file, synchronously: to be called on a worker. Without extents everything is read.
 * @returns `sha256:<64 hex>`
 */
export function digestFile(path: string, extents: Extents | null): string {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const hash = createHash('sha256');
    const buffer = Buffer.allocUnsafe(blocksPerRead * blockBytes);
    const number = Buffer.alloc(8);
    for (const [first, count] of blockRuns(extents ?? [[0, size]], size)) {
      const bytes = readFully(file, buffer, Math.min(count * blockBytes, size - first * blockBytes), first);
      for (let offset = 0; offset < bytes; offset += blockBytes) {
        const block = buffer.subarray(offset, Math.min(bytes, offset + blockBytes));
        if (block.equals(zeroBlock.subarray(0, block.length))) continue;
        number.writeBigUInt64LE(BigInt(first + offset / blockBytes));
        hash.update(number).update(block);
      }
    }
    number.writeBigUInt64LE(BigInt(size));
    return `sha256:${hash.update(number).digest('hex')}`;
  } finally {
    closeSync(file);
  }
}

function readFully(file: number, buffer: Buffer, bytes: number, firstBlock: number): number {
  let filled = 0;
  while (filled < bytes) {
    const got = readSync(file, buffer, filled, bytes - filled, firstBlock * blockBytes + filled);
    if (got === 0) throw new Error('the file became shorter while it was read');
    filled += got;
  }
  return filled;
}
