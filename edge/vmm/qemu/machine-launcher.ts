/** Makes a machine's directory and starts its VMM so that an edge's death at any instant leaves nothing unfindable. */
import { chmod, chown, copyFile, type FileHandle, mkdir, open, readdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { GatewayError, type MachineId, randomName } from '../../../sdk/index.ts';
import type { TapPlace } from '../port.ts';
import { inheritedFiles, shimMemoryName } from './command-line.ts';
import { errnoOf, toVmmError } from './failure.ts';
import type { Launch, Launched, LaunchSpec } from './launch.ts';
import { type MachineFiles, machineFiles, vmmFileNames } from './machine-files.ts';
import { hostBootId, type OwnerRecord, writeOwnerRecord } from './owner-record.ts';
import { VmmProcess } from './vmm-process.ts';
import type { VmmUser } from './vmm-user.ts';

/** A file which the VMM gets open, in the order of `inheritedFiles`. */
export interface InheritedFile {
  readonly path: string;
  readonly mode: 'r' | 'r+';
}

export interface MachineStartPlan {
  readonly id: MachineId;
  readonly binary: string;
  readonly argv: readonly string[];
  /** Memory first; without any the VMM has no memory file. */
  readonly inherited: readonly InheritedFile[];
  /** Under KVM the VMM inherits the device as well: its user has no right to open it. */
  readonly accelerator: 'kvm' | 'tcg';
  /** Most bytes of any file that the VMM writes. */
  readonly fileBytes: number;
  readonly note: unknown;
  /** Default: no network card. */
  readonly tap?: TapPlace | null;
  /** Creates what must be in the directory, or be there to inherit, before the VMM starts. */
  readonly prepare: (files: MachineFiles) => Promise<void>;
}

export interface MachineLauncherDeps {
  readonly launch: Launch;
  readonly runDirectory: string;
  readonly shimPath: string;
  /** `edge/network/native/build/tap-launch`; needed for machines with a network card. */
  readonly tapLauncherPath?: string | undefined;
  readonly now: () => number;
  /** Whom a machine's VMM runs as; null: as we do. */
  readonly userOf: (id: MachineId) => VmmUser | null;
}

/**
 * Starts and connects. On failure everything is removed again and a `GatewayError` with the VMM's last lines thrown.
 *
 * Order: directory, record of the intent, process, record of the process. A kill in between leaves a directory without a
 * process (removable), or a process whose `-name` is the directory's name (found by scanning).
 */
export async function startMachine(
  deps: MachineLauncherDeps,
  plan: MachineStartPlan,
  signal: AbortSignal,
): Promise<VmmProcess> {
  const files = machineFiles(join(deps.runDirectory, plan.id));
  const record: OwnerRecord = {
    format: 1,
    id: plan.id,
    generation: randomName(12),
    createdAt: deps.now(),
    bootId: await hostBootId(),
    process: null,
    memoryPath: plan.inherited[0]?.path ?? '',
    note: plan.note ?? null,
  };
  if (signal.aborted) throw toVmmError(signal.reason, 'start the VMM', startCodes, noLines);
  await makeDirectory(files.path);
  let machine: VmmProcess | null = null;
  try {
    await mkdir(files.vmmDirectory, { mode: 0o700 });
    await writeOwnerRecord(files.ownerRecord, record);
    await plan.prepare(files);
    const launched = await launchWithFiles(deps, plan, files);
    machine = new VmmProcess(files.path, { ...record, process: launched.identity }, launched.handle);
    await writeOwnerRecord(files.ownerRecord, machine.record);
    await machine.attach(signal);
    return machine;
  } catch (error) {
    if (machine !== null) throw await machine.fail(error, 'start the VMM', startCodes);
    await rm(files.path, { recursive: true, force: true });
    throw toVmmError(error, 'start the VMM', startCodes, noLines);
  }
}

const startCodes = { failed: 'vmm_failed', timeout: 'vmm_failed' } as const;
const noLines = { stderr: '', console: '' };

async function makeDirectory(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (cause) {
    if (errnoOf(cause) === 'EEXIST')
      throw new GatewayError('conflict', 'there is a machine of this id already', {
        component: 'edge',
        cause,
      });
    throw toVmmError(cause, 'make the directory of the machine', startCodes, noLines);
  }
}

async function launchWithFiles(
  deps: MachineLauncherDeps,
  plan: MachineStartPlan,
  files: MachineFiles,
): Promise<Launched> {
  const user = deps.userOf(plan.id);
  // The VMM may not be able to reach our checkout, so it gets its own copy of the shim.
  await copyFile(deps.shimPath, files.shim);
  await chmod(files.shim, 0o444);
  if (user !== null) await giveAway(files.vmmDirectory, user);
  await using stack = new AsyncDisposableStack();
  const inherited: number[] = [];
  for (const { path, mode } of plan.inherited) inherited.push(stack.use(await openInherited(path, mode)).fd);
  const env: Record<string, string> = {
    LC_ALL: 'C',
    LD_PRELOAD: `./${vmmFileNames.shim}`,
    SNAPGATE_FILE_BYTES: String(plan.fileBytes),
  };
  if (inherited.length > 0) {
    env.SNAPGATE_MEMORY_NAME = shimMemoryName;
    env.SNAPGATE_MEMORY_FD = String(inheritedFiles.memory);
  }
  if (plan.accelerator === 'kvm') {
    env.SNAPGATE_KVM_FD = String(inheritedFiles.memory + inherited.length);
    inherited.push(stack.use(await openKvm()).fd);
  }
  const { binary, argv } = plan;
  return await deps.launch({ binary, argv, env, files, inherited, user, tap: tapOf(deps, plan) });
}

function tapOf(
  { tapLauncherPath }: MachineLauncherDeps,
  { tap = null }: MachineStartPlan,
): LaunchSpec['tap'] {
  if (tap === null) return null;
  if (tapLauncherPath !== undefined)
    return { ...tap, program: tapLauncherPath, descriptor: inheritedFiles.tap };
  throw new GatewayError('host_not_ready', 'this node can not give machines a network card', {
    component: 'edge',
  });
}

async function openKvm(): Promise<FileHandle> {
  return await open('/dev/kvm', 'r+').catch((cause: unknown) => {
    throw new GatewayError('host_not_ready', `/dev/kvm can't be opened by this user (${errnoOf(cause)})`, {
      component: 'edge',
      cause,
    });
  });
}

async function openInherited(path: string, mode: InheritedFile['mode']): Promise<FileHandle> {
  return await open(path, mode).catch((cause: unknown) => {
    if (errnoOf(cause) !== 'ENOENT') throw cause;
    throw new GatewayError(
      'snapshot_corrupt',
      `${basename(path)}, which the machine is made of, is missing`,
      {
        component: 'edge',
        cause,
      },
    );
  });
}

/** Makes the VMM's directory and all that was prepared in it the VMM's own. */
async function giveAway(directory: string, { uid, gid }: VmmUser): Promise<void> {
  for (const name of await readdir(directory)) await chown(join(directory, name), uid, gid);
  await chown(directory, uid, gid);
}
