/** Machines that an earlier edge left behind: finding, taking over, removing. */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError, isMachineId } from '../../../sdk/index.ts';
import type { BlankVmm, Leftover, PausedVmm, RunningVmm } from '../port.ts';
import { machineFiles } from './machine-files.ts';
import { hostBootId, readOwnerRecord } from './owner-record.ts';
import { blankVmm, pausedVmm, runningVmm } from './phases.ts';
import { adoptedHandle, killIfAlive } from './process-handle.ts';
import {
  isAlive,
  isMachineProcess,
  namedProcesses,
  type ProcessIdentity,
  processStartTime,
} from './process-table.ts';
import type { RunState } from './qmp-message.ts';
import { VmmProcess } from './vmm-process.ts';

const adoptTimeoutMs = 5000;
const killDeadlineMs = 5000;
const adoptCodes = { failed: 'vmm_failed', timeout: 'vmm_failed' } as const;

/** Every machine directory below the run directory, with its live process where there is one. */
export async function findLeftovers(runDirectory: string): Promise<Leftover[]> {
  const entries = await readdir(runDirectory, { withFileTypes: true }).catch(() => []);
  let scanned: Map<string, ProcessIdentity> | null = null;
  const bootId = await hostBootId();
  const found: Leftover[] = [];
  for (const { name } of entries.filter((entry) => entry.isDirectory())) {
    if (!isMachineId(name)) continue;
    const path = join(runDirectory, name);
    const record = await readOwnerRecord(machineFiles(path).ownerRecord);
    let identity = record?.bootId === bootId ? record.process : null;
    if (identity === null) {
      // The edge died between starting the process and writing it down, or the record is spoilt.
      scanned ??= await namedProcesses();
      identity = scanned.get(name) ?? null;
    } else if (!(await isMachineProcess(identity, name))) identity = null;
    found.push({ id: name, directory: { path }, pid: identity?.pid ?? null, note: record?.note ?? null });
  }
  return found;
}

/** The live process of a leftover, checked again: time has passed since it was found. */
async function liveProcess({ id, pid }: Leftover): Promise<ProcessIdentity | null> {
  if (pid === null) return (await namedProcesses()).get(id) ?? null;
  const startTime = await processStartTime(pid);
  if (startTime === null) return null;
  const identity = { pid, startTime };
  return (await isMachineProcess(identity, id)) ? identity : null;
}

/** Takes over a live leftover; see the port. */
export async function adoptLeftover(leftover: Leftover): Promise<RunningVmm | PausedVmm | BlankVmm> {
  const record = await readOwnerRecord(machineFiles(leftover.directory.path).ownerRecord);
  const identity = await liveProcess(leftover);
  if (record === null || record.id !== leftover.id || identity === null)
    throw new GatewayError('vmm_failed', `machine ${leftover.id} has no live process or no record`, {
      component: 'edge',
    });
  const machine = new VmmProcess(
    leftover.directory.path,
    { ...record, process: identity },
    adoptedHandle(identity),
  );
  try {
    await machine.attach(AbortSignal.timeout(adoptTimeoutMs));
    const { status } = await machine.qmp.execute('query-status', {}, { timeoutMs: adoptTimeoutMs });
    return enterPhase(machine, status);
  } catch (error) {
    throw await machine.fail(error, `adopt machine ${leftover.id}`, adoptCodes);
  }
}

function enterPhase(machine: VmmProcess, status: RunState): RunningVmm | PausedVmm | BlankVmm {
  switch (status) {
    case 'inmigrate':
      machine.assumePhase('blank');
      return blankVmm(machine);
    case 'paused':
      machine.assumePhase('paused');
      return pausedVmm(machine);
    case 'running':
      machine.assumePhase('running');
      return runningVmm(machine);
    default:
      throw new GatewayError('vmm_failed', `machine ${machine.id} is in no usable state (${status})`, {
        component: 'edge',
      });
  }
}

/** Kills what is left and removes the directory. Throws `vmm_failed` when the process would not die. */
export async function removeLeftover(leftover: Leftover): Promise<void> {
  const identity = await liveProcess(leftover);
  if (identity !== null) await killAndWait(identity);
  await rm(leftover.directory.path, { recursive: true, force: true, maxRetries: 3 });
}

async function killAndWait(identity: ProcessIdentity): Promise<void> {
  killIfAlive(identity);
  const deadline = performance.now() + killDeadlineMs;
  while (await isAlive(identity)) {
    if (performance.now() > deadline)
      throw new GatewayError('vmm_failed', `process ${identity.pid} did not end when killed`, {
        component: 'edge',
      });
    await sleep(5);
  }
}
