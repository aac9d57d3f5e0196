/** The QEMU driver of the VMM port. */
export { createQemuVmm, type QemuVmmDeps, type QemuVmmOptions } from './driver.ts';
export type { Launch, Launched, LaunchSpec } from './launch.ts';
