/**
 * QEMU's command line, as a pure function. A clone's line must describe the very machine of the boot (the device state
 * only loads into the same one); it differs in having no kernel, in its disk, and in waiting for state.
 *
 * No path of the host is on it: what the VMM may use lies in its own directory under short names, or is inherited open.
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
export const board = 'q35,usb=off,sata=off,smbus=off,vmport=off,smm=off,graphics=off,suppress-vmdesc=on';

export type MachineStart =
  /** Kernel and initramfs lie in the VMM's directory. The arguments are joined with spaces; the guest splits at them. */
  { readonly kind: 'boot'; readonly kernelArgs: readonly string[] } | { readonly kind: 'clone' };

/** Files that the VMM inherits open, by the number it gets them under. */
export const inheritedFiles = {
  /** RAM: read-only for a clone. Opened through the mapping shim, see `edge/native/map-private.c`. */
  memory: 3,
  /** Root file system, read-only. */
  root: 4,
  /** A boot's whole disk, writable; or the frozen layer below a clone's own, read-only. */
  disk: 5,
  /** The tap of the machine's slot, where it has a network card; 6 is left for /dev/kvm. */
  tap: 7,
} as const;

/** The same in every clone: the slot behind the tap makes the difference. Also in `guestLink` of `edge/network/slot/layout.ts`. */
const networkCardMac = '02:73:6e:61:70:02';

/** The path that only the mapping shim can open; without the shim QEMU does not start. */
export const shimMemoryName = '/dev/null/snapgate-memory';

const rootSet = 1;
const diskSet = 2;

/** Node name of the writable layer in QEMU's block graph; `blockdev-snapshot-sync` takes it. */
const scratchNodeName = 'scratch0';
/** Also the name under which RAM appears in device state: changing it invalidates snapshots. */
const memoryId = 'ram0';

/**
 * `no_timer_check`: on a busy host an emulated timer misses the kernel's expectations, which then tries interrupt modes
 * that hang ("8254 timer not connected to IO-APIC", seen under load); KVM guests skip the check by themselves.
 */
const baseKernelArgs = ['console=ttyS0', 'panic=-1', 'quiet', 'no_timer_check'];

/** Full argument vector without the binary. Pure; the process must run in the machine's `vmm/` directory. */
export function commandLine(
  id: MachineId,
  shape: MachineShape,
  acceleration: Acceleration,
  start: MachineStart,
): string[] {
  return [
    ...processArguments(id, acceleration),
    ...['-machine', `${board},memory-backend=${memoryId},mem-merge=off,dump-guest-core=off`],
    ...['-smp', `cpus=${shape.vcpus},sockets=1,cores=${shape.vcpus},threads=1`],
    ...['-m', `${shape.memoryMiB}M`],
    ...['-object', json(memoryBackend(shape.memoryMiB))],
    ...['-add-fd', `fd=${inheritedFiles.root},set=${rootSet}`],
    ...['-add-fd', `fd=${inheritedFiles.disk},set=${diskSet}`],
    ...['-blockdev', json(rootBlock), '-blockdev', json(scratchBlock(start))],
    ...['-device', json(disk('root', 'root0')), '-device', json(disk('scratch', scratchNodeName))],
    ...['-chardev', `socket,id=agent,path=${vmmFileNames.agent},server=on,wait=off`],
    ...['-device', json({ driver: 'virtio-serial-pci', id: 'serial', max_ports: 2 })],
    ...['-device', json({ driver: 'virtserialport', chardev: 'agent', name: 'snapgate.agent' })],
    ...(shape.hasNetworkCard ? networkCard : []),
    ...startArguments(start),
  ];
}

/** What every VMM of ours is started with, whatever the machine: confinement, control socket, console, stopped vCPUs. */
export function processArguments(id: MachineId, acceleration: Acceleration): string[] {
  return [
    ...['-name', id, '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-S'],
    // Device state is saved without the section that describes who wrote it (see `device-state.ts`); the fingerprint does that.
    ...['-global', 'migration.send-configuration=off'],
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
  return ['-kernel', vmmFileNames.kernel, '-initrd', vmmFileNames.initrd, '-append', append];
}

// share=on in both cases: QEMU leaves shared RAM out of the device state. Clones get a private mapping from the shim.
const memoryBackend = (memoryMiB: number) => ({
  'qom-type': 'memory-backend-file',
  id: memoryId,
  size: memoryMiB * 2 ** 20,
  'mem-path': shimMemoryName,
  share: true,
});

const openFile = (set: number, isReadOnly: boolean) => ({
  driver: 'file',
  filename: `/dev/fdset/${set}`,
  'read-only': isReadOnly,
  locking: 'off',
});

const rootBlock = { driver: 'raw', 'node-name': 'root0', 'read-only': true, file: openFile(rootSet, true) };

// The guest's flushes are not passed on to the medium: a machine doesn't outlive its host's memory anyway, and what
// survives (a frozen layer) is synced by whoever publishes it.
// The chain of layers is said here to its end: what a disk's header says about it came from a VMM.
const frozenLayer = { driver: 'qcow2', 'read-only': true, file: openFile(diskSet, true), backing: null };

const scratchBlock = (start: MachineStart) => ({
  driver: 'qcow2',
  'node-name': scratchNodeName,
  discard: 'unmap',
  cache: { direct: false, 'no-flush': true },
  ...(start.kind === 'boot'
    ? { file: { ...openFile(diskSet, false), discard: 'unmap' }, backing: null }
    : {
        file: { driver: 'file', filename: vmmFileNames.disk, locking: 'off', discard: 'unmap' },
        backing: frozenLayer,
      }),
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

// No ROM: nothing boots from it. No announcements after a restore: the slot knows its guest, and nobody else is on the link.
// Without vhost the VMM needs no right to another device and no descriptor more.
const networkCard = [
  ...['-netdev', `tap,id=net0,fd=${inheritedFiles.tap},vhost=off`],
  ...[
    '-device',
    JSON.stringify({
      driver: 'virtio-net-pci',
      id: 'card',
      netdev: 'net0',
      mac: networkCardMac,
      romfile: '',
      guest_announce: false,
    }),
  ],
];

const json = (value: unknown) => JSON.stringify(value);
