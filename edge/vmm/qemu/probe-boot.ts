/**
 * The probe boot: does a stock guest really run under KVM here? `/dev/kvm` existing, opening and creating VMs proves
 * nothing: under some nested, paravirtual KVMs a guest then spins for ever.
 */
import { copyFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { isGatewayError, type MachineId, randomName } from '../../../sdk/index.ts';
import { type Acceleration, board, processArguments } from './command-line.ts';
import { vmmFileNames } from './machine-files.ts';
import { type MachineLauncherDeps, startMachine } from './machine-launcher.ts';
import type { VmmProcess } from './vmm-process.ts';

/** What the probe boots: the kernel and initramfs that all guests use. */
export interface ProbeGuest {
  readonly kernelPath: string;
  readonly initrdPath: string;
}

export interface ProbeOptions {
  readonly binary: string;
  readonly acceleration: Acceleration;
  readonly guest: ProbeGuest;
  /** From the first instruction of the guest to its first process. A working KVM needs well under a second. */
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

/** The kernel prints this, at its normal log level, when it starts the first process: all of its own start went well. */
const bootedMark = 'Run /init as init process';
const consolePollMs = 50;
const startDeadlineMs = 10_000;
const probeMemoryMiB = 256;

/**
 * Boots the guest's kernel and throws it away.
 * @returns null when it came up, else the reason why not, as the end of a sentence; rejects only when aborted
 */
export async function probeBoot(deps: MachineLauncherDeps, options: ProbeOptions): Promise<string | null> {
  const { guest, acceleration, signal } = options;
  const id = randomName(20) as MachineId;
  const argv = [
    ...processArguments(id, acceleration),
    ...[
      '-machine',
      board,
      '-m',
      `${probeMemoryMiB}M`,
      '-kernel',
      vmmFileNames.kernel,
      '-initrd',
      vmmFileNames.initrd,
    ],
    ...['-append', 'console=ttyS0 panic=-1 loglevel=7'],
  ];
  let machine: VmmProcess | null = null;
  try {
    machine = await startMachine(
      deps,
      {
        id,
        binary: options.binary,
        argv,
        inherited: [],
        accelerator: acceleration.accelerator,
        fileBytes: 2 ** 20,
        note: { purpose: 'probe' },
        prepare: async (files) => {
          await copyFile(guest.kernelPath, files.kernel);
          await copyFile(guest.initrdPath, files.initrd);
        },
      },
      AbortSignal.any([signal, AbortSignal.timeout(startDeadlineMs)]),
    );
    await machine.qmp.execute('cont', {}, { signal });
    return await watchBoot(machine, options);
  } catch (error) {
    signal.throwIfAborted();
    return `the VMM did not start (${reasonLine(isGatewayError(error) ? (error.details.output ?? error.message) : String(error))})`;
  } finally {
    await machine?.dispose();
  }
}

async function watchBoot(machine: VmmProcess, options: ProbeOptions): Promise<string | null> {
  const ended = machine.exited.then(() => true);
  const deadline = performance.now() + options.deadlineMs;
  for (;;) {
    options.signal.throwIfAborted();
    // The mark may be followed by a panic (no root here), which ends the VMM: look first.
    const isOver = await Promise.race([ended, sleep(consolePollMs, false)]);
    const console = machine.consoleTail();
    if (console.includes(bootedMark)) return null;
    if (isOver) return 'the guest kernel ended while it started';
    if (performance.now() > deadline)
      return `the guest kernel ${console === '' ? 'printed nothing' : 'did not come up'} within ${options.deadlineMs} ms`;
  }
}

/** The first line in which QEMU says why, short enough for a sentence. */
function reasonLine(text: string): string {
  const lines = text
    .split('\n')
    .map((line) => line.replace(/^qemu-system-x86_64: /, '').trim())
    .filter((line) => line !== '' && !line.endsWith('stderr:'));
  const line = lines.find((candidate) => !candidate.startsWith('warning:')) ?? lines[0] ?? 'it said nothing';
  return line.slice(0, 200);
}
