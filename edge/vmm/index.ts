/** Virtual machine monitors: the port, its drivers, and the comparison of what snapshots were made with. */
export { fingerprintDifferences } from './fingerprint.ts';
export * from './port.ts';
export { createQemuVmm, type QemuVmmDeps, type QemuVmmOptions } from './qemu/index.ts';
