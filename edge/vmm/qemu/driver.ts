/** The QEMU driver behind the VMM port. */
import { constants, copyFile, mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { GatewayError, type MachineId } from '../../../sdk/index.ts';
import { createOverlay } from '../../disk/qcow2-overlay.ts';
import { createScratchDisks, type ScratchDisks } from '../../disk/scratch-disk.ts';
import type { AcceleratorVerdict, BlankOptions, BlankVmm, BootOptions, RunningVmm, Vmm } from '../port.ts';
import { decideAccelerator } from './accelerator.ts';
import { type Acceleration, commandLine, type MachineStart } from './command-line.ts';
import { fingerprintOf, hasKvmDevice, readHostFacts } from './host-facts.ts';
import { type Launch, launchDetached } from './launch.ts';
import { adoptLeftover, findLeftovers, removeLeftover } from './leftovers.ts';
import { type MachineFiles, maxRunDirectoryBytes } from './machine-files.ts';
import {
  type InheritedFile,
  type MachineLauncherDeps,
  type MachineStartPlan,
  startMachine,
} from './machine-launcher.ts';
import { expectState } from './migration.ts';
import { blankVmm, runningVmm } from './phases.ts';
import { type ProbeGuest, probeBoot } from './probe-boot.ts';
import type { VmmProcess } from './vmm-process.ts';
import { canSwitchUser, userOfMachine } from './vmm-user.ts';

export interface QemuVmmDeps {
  /** Epoch milliseconds. */
  readonly now: () => number;
  /** How processes are started; default: plain, detached. */
  readonly launch?: Launch;
}

export interface QemuVmmOptions {
  /** Machine directories; created when missing, mode 0700. Its path is short, since sockets live below it. */
  readonly runDirectory: string;
  /** Verdict and formatted scratch disks. */
  readonly cacheDirectory: string;
  /** `edge/native/build/map-private.so`. */
  readonly shimPath: string;
  /** `edge/network/native/build/tap-launch`; without it machines with a network card are refused. */
  readonly tapLauncherPath?: string;
  /** Default `/usr/bin/qemu-system-x86_64`. */
  readonly binary?: string;
  /** Default `auto`: KVM where a probe boot succeeds. */
  readonly accelerator?: 'auto' | 'kvm' | 'tcg';
  /** What the probe boots. Without it a host that has /dev/kvm is not probed and emulates. */
  readonly probeGuest?: ProbeGuest;
  /** Probe again although the verdict is known. */
  readonly isProbeForced?: boolean;
  /** Default 64. */
  readonly translationCacheMiB?: number;
  readonly signal: AbortSignal;
}

/**
 * Named, so that it is the same on every host that can run it, and refused (`enforce`) by one that can't: x86-64-v2 with
 * AES, which every server CPU since 2010 has.
 */
const kvmCpuModel = 'Westmere-v1,enforce';
/** Everything QEMU can emulate, which depends on QEMU's build alone. */
const tcgCpuModel = 'max';
const probeDeadlineMs = 4000;

/** Decides on the accelerator, which may take a probe boot, and answers a driver. Throws `host_not_ready`. */
export async function createQemuVmm(deps: QemuVmmDeps, options: QemuVmmOptions): Promise<Vmm> {
  const binary = options.binary ?? '/usr/bin/qemu-system-x86_64';
  if (Buffer.byteLength(options.runDirectory) > maxRunDirectoryBytes)
    throw new GatewayError(
      'host_not_ready',
      `the path ${options.runDirectory} is too long for sockets below it`,
      {
        component: 'edge',
      },
    );
  await requireFile(options.shimPath, 'the mapping shim');
  await mkdir(options.runDirectory, { recursive: true, mode: 0o700 });
  const isUserSwitched = await canSwitchUser(binary, userOfMachine('0'.repeat(20) as MachineId));
  const launcher: MachineLauncherDeps = {
    launch: deps.launch ?? launchDetached,
    runDirectory: options.runDirectory,
    shimPath: options.shimPath,
    tapLauncherPath: options.tapLauncherPath,
    now: deps.now,
    userOf: (id) => (isUserSwitched ? userOfMachine(id) : null),
  };
  const accelerationOf = (accelerator: 'kvm' | 'tcg'): Acceleration => ({
    accelerator,
    cpuModel: accelerator === 'kvm' ? kvmCpuModel : tcgCpuModel,
    translationCacheMiB: options.translationCacheMiB ?? 64,
  });
  const facts = await readHostFacts(binary);
  const verdict = await judge();
  const acceleration = accelerationOf(verdict.accelerator);
  return new QemuVmm(
    {
      launcher,
      binary,
      acceleration,
      scratchDisks: createScratchDisks(join(options.cacheDirectory, 'scratch')),
    },
    verdict,
    fingerprintOf(facts, acceleration),
  );

  async function judge(): Promise<AcceleratorVerdict> {
    const wanted = options.accelerator ?? 'auto';
    const decidedAt = deps.now();
    if (wanted !== 'auto')
      return {
        accelerator: wanted,
        reason: `The configuration asks for ${wanted.toUpperCase()}.`,
        decidedAt,
      };
    const { probeGuest: guest, signal } = options;
    if (guest === undefined)
      return {
        accelerator: 'tcg',
        reason: 'Guests are emulated: there is no guest kernel yet to probe KVM with.',
        decidedAt,
      };
    const probe = () =>
      probeBoot(launcher, {
        binary,
        acceleration: accelerationOf('kvm'),
        guest,
        deadlineMs: probeDeadlineMs,
        signal,
      });
    return await decideAccelerator(
      { hasKvmDevice, probe, now: deps.now },
      {
        key: { ...facts, cpuModel: kvmCpuModel },
        cachePath: join(options.cacheDirectory, 'accelerator.json'),
        ...(options.isProbeForced === undefined ? {} : { isProbeForced: options.isProbeForced }),
      },
    );
  }
}

interface QemuVmmParts {
  readonly launcher: MachineLauncherDeps;
  readonly binary: string;
  readonly acceleration: Acceleration;
  readonly scratchDisks: ScratchDisks;
}

const startCodes = { failed: 'vmm_failed', timeout: 'vmm_failed' } as const;

class QemuVmm implements Vmm {
  readonly verdict: AcceleratorVerdict;
  readonly fingerprint: Vmm['fingerprint'];
  readonly #parts: QemuVmmParts;

  constructor(parts: QemuVmmParts, verdict: AcceleratorVerdict, fingerprint: Vmm['fingerprint']) {
    this.#parts = parts;
    this.verdict = verdict;
    this.fingerprint = fingerprint;
  }

  async boot(options: BootOptions): Promise<RunningVmm> {
    const { shape, memoryPath, diskPath, kernelArgs, signal } = options;
    const created: string[] = [];
    const prepare = async (files: MachineFiles) => {
      await createSparse(memoryPath, shape.memoryMiB * 2 ** 20);
      created.push(memoryPath);
      await this.#parts.scratchDisks.create(diskPath, shape.diskMiB, { signal });
      created.push(diskPath);
      await copyFile(options.kernelPath, files.kernel, constants.COPYFILE_FICLONE);
      await copyFile(options.initrdPath, files.initrd, constants.COPYFILE_FICLONE);
    };
    try {
      const inherited = [
        { path: memoryPath, mode: 'r+' },
        { path: shape.rootPath, mode: 'r' },
        { path: diskPath, mode: 'r+' },
      ] as const;
      const machine = await this.#start(options, { kind: 'boot', kernelArgs }, inherited, prepare);
      return await machine.step('boot', 'boot the machine', startCodes, async () => {
        await machine.qmp.execute('cont', {}, { signal });
        return runningVmm(machine);
      });
    } catch (error) {
      for (const path of created) await rm(path, { force: true });
      throw error;
    }
  }

  async spawnBlank(options: BlankOptions): Promise<BlankVmm> {
    const { shape, snapshot, signal } = options;
    const prepare = (files: MachineFiles) =>
      createOverlay({
        path: files.disk,
        backingPath: snapshot.diskPath,
        backingFormat: 'qcow2',
        virtualMiB: shape.diskMiB,
      });
    const readOnly = (path: string) => ({ path, mode: 'r' }) as const;
    const inherited = [snapshot.memoryPath, shape.rootPath, snapshot.diskPath].map(readOnly);
    const machine = await this.#start(options, { kind: 'clone' }, inherited, prepare);
    return await machine.step('expectState', 'prepare the VMM', startCodes, async () => {
      await requirePrivateMapping(machine.pid, snapshot.memoryPath);
      await expectState(machine.qmp, signal);
      return blankVmm(machine);
    });
  }

  leftovers() {
    return findLeftovers(this.#parts.launcher.runDirectory);
  }
  adopt = adoptLeftover;
  remove = removeLeftover;

  #start(
    options: BootOptions | BlankOptions,
    start: MachineStart,
    inherited: readonly InheritedFile[],
    prepare: MachineStartPlan['prepare'],
  ): Promise<VmmProcess> {
    const { launcher, binary, acceleration } = this.#parts;
    const { id, shape, note, signal } = options;
    const tap = shape.hasNetworkCard ? (options.tap ?? null) : null;
    if (shape.hasNetworkCard && tap === null) throw new Error('a machine with a network card needs a tap');
    const argv = commandLine(id, shape, acceleration, start);
    // A qcow2 needs a little more than what it holds.
    const fileBytes = Math.ceil(shape.diskMiB * 1.125 + 64) * 2 ** 20;
    const { accelerator } = acceleration;
    const plan = { id, binary, argv, inherited, accelerator, fileBytes, note, tap, prepare };
    return startMachine(launcher, plan, signal);
  }
}

async function createSparse(path: string, bytes: number): Promise<void> {
  await using file = await open(path, 'wx', 0o600);
  await file.truncate(bytes);
}

async function requireFile(path: string, what: string): Promise<void> {
  const file = await open(path, 'r').catch((cause: unknown) => {
    throw new GatewayError('host_not_ready', `${what} is missing at ${path}`, { component: 'edge', cause });
  });
  await file.close();
}

/** The template's memory is at stake, so the shim's work is checked rather than trusted. */
async function requirePrivateMapping(pid: number, memoryPath: string): Promise<void> {
  const lines = (await readFile(`/proc/${pid}/maps`, 'utf8')).split('\n');
  const mappings = lines.filter((line) => line.endsWith(` ${memoryPath}`));
  if (mappings.length > 0 && mappings.every((line) => /^\S+ ...p /.test(line))) return;
  throw new GatewayError('vmm_failed', 'the VMM did not map the template privately', { component: 'edge' });
}
