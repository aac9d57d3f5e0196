/** Memory of machines: checksums of snapshot files, and what a running VMM holds. */
export { createImageDigester, type ImageDigester, type ImageDigesterOptions } from './image-digester.ts';
export { type MemoryUse, readMemoryUse } from './memory-use.ts';
export {
  type SnapshotChecksums,
  snapshotChecksumsSchema,
  takeChecksums,
  verifyChecksums,
} from './snapshot-checksums.ts';
