/** Virtual machine monitors: the port and its drivers. */
export * from './port.ts';
export { createQemuVmm, type QemuVmmDeps, type QemuVmmOptions } from './qemu/index.ts';
