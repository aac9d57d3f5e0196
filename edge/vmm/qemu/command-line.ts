/**
 * QEMU's command line, as a pure function. A clone's line must describe the very machine of the boot (the device state
 * only loads into the same one); it differs in having no kernel and in waiting for state.
 *
 * Everything with a path goes through QEMU's JSON syntax or is a short name in the VMM's own directory, so no path ever
 * meets QEMU's comma syntax.
 */
import type { MachineId } from '../../../sdk/index.ts';
import type { MachineShape } from '../port.ts';
import { vmmFileNames } from './machine-files.ts';

/** The three things in which emulation and KVM may differ, beside the binary. */
export interface Acceleration {
  readonly accelerator: 'kvm' | 'tcg';
  /** As in `-cpu`. */
  readonly cpuModel: string;
  /** Size of the translation cache; ignored under KVM. */
  readonly translationCacheMiB: number;
}

/** Board and its options: part of the fingerprint. Devices that no guest of ours uses are left out. */
export const board = 'q35,usb=off,sata=off,smbus=off,vmport=off,smm=off,graphics=off';

export type MachineStart =
  | {
      readonly kind: 'boot';
      readonly memoryPath: string;
      readonly diskPath: string;
      readonly kernelPath: string;
      readonly initrdPath: string;
      /** Joined with spaces; the guest splits at them. */
      readonly kernelArgs: readonly string[];
    }
  | {
      readonly kind: 'clone';
      /** The name which only the mapping shim can open. */
      readonly memoryName: string;
    };

/** Node name of the writable layer in QEMU's block graph; `blockdev-snapshot-sync` takes it. */
export const scratchNodeName = 'scratch0';
/** Also the name under which RAM appears in device state: changing it invalidates snapshots. */
const memoryId = 'ram0';

const baseKernelArgs = ['console=ttyS0', 'panic=-1', 'quiet'];

/** Full argument vector without the binary. Pure; the process must run in the machine's `vmm/` directory. */
export function commandLine(
  id: MachineId,
  shape: MachineShape,
  acceleration: Acceleration,
  start: MachineStart,
): string[] {
  const memoryPath = start.kind === 'boot' ? start.memoryPath : start.memoryName;
  const diskPath = start.kind === 'boot' ? start.diskPath : vmmFileNames.disk;
  return [
    ...processArguments(id, acceleration),
    ...['-machine', `${board},memory-backend=${memoryId},mem-merge=off,dump-guest-core=off`],
    ...['-smp', `cpus=${shape.vcpus},sockets=1,cores=${shape.vcpus},threads=1`],
    ...['-m', `${shape.memoryMiB}M`],
    ...['-object', json(memoryBackend(memoryPath, shape.memoryMiB))],
    ...['-blockdev', json(rootBlock(shape.rootPath)), '-blockdev', json(scratchBlock(diskPath))],
    ...['-device', json(disk('root', 'root0')), '-device', json(disk('scratch', scratchNodeName))],
    ...['-chardev', `socket,id=agent,path=${vmmFileNames.agent},server=on,wait=off`],
    ...['-device', json({ driver: 'virtio-serial-pci', id: 'serial', max_ports: 2 })],
    ...['-device', json({ driver: 'virtserialport', chardev: 'agent', name: 'snapgate.agent' })],
    ...startArguments(start),
  ];
}

/** What every VMM of ours is started with, whatever the machine: confinement, control socket, console, stopped vCPUs. */
export function processArguments(id: MachineId, acceleration: Acceleration): string[] {
  return [
    ...['-name', id, '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-S'],
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ...['-accel', accelArgument(acceleration), '-cpu', acceleration.cpuModel],
    ...['-qmp', `unix:${vmmFileNames.qmp},server=on,wait=off`],
    ...['-chardev', `socket,id=console,path=${vmmFileNames.console},server=on,wait=off`],
    ...['-serial', 'chardev:console'],
  ];
}

function accelArgument(acceleration: Acceleration): string {
  return acceleration.accelerator === 'kvm'
    ? 'kvm'
    : `tcg,thread=multi,tb-size=${acceleration.translationCacheMiB}`;
}

function startArguments(start: MachineStart): string[] {
  if (start.kind === 'clone') return ['-incoming', 'defer'];
  const append = [...baseKernelArgs, ...start.kernelArgs].join(' ');
  return ['-kernel', start.kernelPath, '-initrd', start.initrdPath, '-append', append];
}

// share=on in both cases: QEMU leaves shared RAM out of the device state. Clones get a private mapping from the shim.
const memoryBackend = (path: string, memoryMiB: number) => ({
  'qom-type': 'memory-backend-file',
  id: memoryId,
  size: memoryMiB * 2 ** 20,
  'mem-path': path,
  share: true,
});

const rootBlock = (path: string) => ({
  driver: 'raw',
  'node-name': 'root0',
  'read-only': true,
  file: { driver: 'file', filename: path, 'read-only': true, locking: 'off' },
});

// The guest's flushes are not passed on to the medium: a machine doesn't outlive its host's memory anyway, and what
// survives (a frozen layer) is synced by whoever publishes it.
const scratchBlock = (path: string) => ({
  driver: 'qcow2',
  'node-name': scratchNodeName,
  discard: 'unmap',
  cache: { direct: false, 'no-flush': true },
  file: { driver: 'file', filename: path, locking: 'off', discard: 'unmap' },
});

// werror=report: with QEMU's default a full host disk stops the vCPUs for ever, silently; the guest shall see EIO.
const disk = (id: string, node: string) => ({
  driver: 'virtio-blk-pci',
  id,
  drive: node,
  'num-queues': 1,
  werror: 'report',
  rerror: 'report',
});

const json = (value: unknown) => JSON.stringify(value);
