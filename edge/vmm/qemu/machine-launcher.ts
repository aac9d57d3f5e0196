/** Makes a machine's directory and starts its VMM so that an edge's death at any instant leaves nothing unfindable. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { GatewayError, type MachineId, randomName } from '../../../sdk/index.ts';
import { errnoOf, toVmmError } from './failure.ts';
import type { Launch } from './launch.ts';
import { type MachineFiles, machineFiles } from './machine-files.ts';
import { hostBootId, type OwnerRecord, writeOwnerRecord } from './owner-record.ts';
import { VmmProcess } from './vmm-process.ts';

/** The path that only the mapping shim can open; without the shim QEMU fails instead of writing into the template. */
export const shimMemoryName = '/dev/null/snapgate-memory';

export interface MachineStartPlan {
  readonly id: MachineId;
  readonly binary: string;
  readonly argv: readonly string[];
  readonly memoryPath: string;
  /** True for clones: memory is mapped privately by the shim. */
  readonly isMemoryPrivate: boolean;
  /** Most bytes of any file that the VMM writes. */
  readonly fileBytes: number;
  readonly note: unknown;
  /** Creates what must be in the directory before the VMM starts. */
  readonly prepare: (files: MachineFiles) => Promise<void>;
}

export interface MachineLauncherDeps {
  readonly launch: Launch;
  readonly runDirectory: string;
  readonly shimPath: string;
  readonly now: () => number;
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
    memoryPath: plan.memoryPath,
    note: plan.note ?? null,
  };
  signal.throwIfAborted();
  await makeDirectory(files.path);
  let machine: VmmProcess | null = null;
  try {
    await mkdir(files.vmmDirectory, { mode: 0o700 });
    await writeOwnerRecord(files.ownerRecord, record);
    await plan.prepare(files);
    const env = environment(deps, plan);
    const launched = await deps.launch({ binary: plan.binary, argv: plan.argv, env, files });
    machine = new VmmProcess(files.path, { ...record, process: launched.identity }, launched.handle);
    await writeOwnerRecord(files.ownerRecord, machine.record);
    await machine.attach(signal);
    return machine;
  } catch (error) {
    if (machine !== null) throw await machine.fail(error, 'start the VMM', startCodes);
    await rm(files.path, { recursive: true, force: true });
    throw toVmmError(error, 'start the VMM', startCodes, { stderr: '', console: '' });
  }
}

const startCodes = { failed: 'vmm_failed', timeout: 'vmm_failed' } as const;

async function makeDirectory(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (cause) {
    if (errnoOf(cause) === 'EEXIST')
      throw new GatewayError('conflict', 'there is a machine of this id already', {
        component: 'edge',
        cause,
      });
    throw toVmmError(cause, 'make the directory of the machine', startCodes, { stderr: '', console: '' });
  }
}

function environment(deps: MachineLauncherDeps, plan: MachineStartPlan): Record<string, string> {
  return {
    LC_ALL: 'C',
    LD_PRELOAD: deps.shimPath,
    SNAPGATE_FILE_BYTES: String(plan.fileBytes),
    ...(plan.isMemoryPrivate
      ? { SNAPGATE_MEMORY_NAME: shimMemoryName, SNAPGATE_MEMORY_FILE: plan.memoryPath }
      : {}),
  };
}
