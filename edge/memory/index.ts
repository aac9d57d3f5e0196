/** Memory of machines: checksums of snapshot files, and what a running VMM holds. */
export { createImageDigester, type ImageDigester, type ImageDigesterOptions } from './image-digester.ts';
export { createMemoryBudget, type MemoryBudget, readAvailableBytes } from './memory-budget.ts';
export { type MemoryUse, readMemoryUse } from './memory-use.ts';
export { type Capture, type CopiedPages, createPageCopier, type PageCopier } from './page-copier.ts';
export { findRamMapping, type RamMapping } from './ram-mapping.ts';
