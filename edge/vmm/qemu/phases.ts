/** The typed phases of a VMM over one process: each object offers only what its phase allows. */
import type { BlankVmm, PausedVmm, RunningVmm, VmmProcess as VmmProcessPort } from '../port.ts';
import { moveState, saveDevices } from './device-state.ts';
import { feedState } from './migration.ts';
import type { VmmProcess } from './vmm-process.ts';

const vmmCodes = { failed: 'vmm_failed', timeout: 'vmm_failed' } as const;
const restoreCodes = { failed: 'restore_failed', timeout: 'restore_timeout' } as const;
/** Writing back a full disk layer to a slow medium takes a while; after that the VMM is killed. */
const quitDeadlineMs = 30_000;

function common(process: VmmProcess): VmmProcessPort {
  return {
    id: process.id,
    pid: process.pid,
    generation: process.record.generation,
    memoryPath: process.record.memoryPath,
    directory: { path: process.files.path },
    agentSocketPath: process.files.agentSocket,
    exited: process.exited,
    consoleTail: async () => process.consoleTail(),
    frozenLayers: () => process.disk.frozen(),
    annotate: (note) => process.annotate(note),
    detach: async () => process.detach(),
    dispose: () => process.dispose(),
    [Symbol.asyncDispose]: () => process.dispose(),
  };
}

/** A VMM that waits for device state. */
export function blankVmm(process: VmmProcess): BlankVmm {
  return {
    ...common(process),
    phase: 'blank',
    stackDisk: (layers) =>
      process.step('stackDisk', 'stack the layers of the disk', restoreCodes, () =>
        process.disk.stack(layers),
      ),
    load: (statePath, { signal }) =>
      process.step('load', 'restore the machine', restoreCodes, async () => {
        await feedState(process.qmp, process.files.incomingSocket, statePath, signal);
        return pausedVmm(process);
      }),
  };
}

/** A VMM whose vCPUs stand still. */
export function pausedVmm(process: VmmProcess): PausedVmm {
  return {
    ...common(process),
    phase: 'paused',
    resume: () =>
      process.step('resume', 'resume the machine', vmmCodes, async () => {
        await process.qmp.execute('cont', {});
        return runningVmm(process);
      }),
    freezeDisk: () => process.step('freezeDisk', 'freeze the disk', vmmCodes, () => process.disk.freeze()),
    saveState: () =>
      process.step('saveState', 'save the state of the machine', vmmCodes, async () => {
        await saveDevices(process.qmp, process.files);
        return {
          moveTo: (path) =>
            process.attempt('keep the state of the machine', vmmCodes, () => moveState(process.files, path)),
        };
      }),
    quit: () =>
      process.step('quit', 'end the VMM', vmmCodes, async () => {
        const ended = process.awaitEnd(quitDeadlineMs);
        // The answer may get lost in the end it announces.
        process.qmp.execute('quit', {}).catch(() => {});
        await ended;
      }),
  };
}

/** A VMM whose guest runs. */
export function runningVmm(process: VmmProcess): RunningVmm {
  return {
    ...common(process),
    phase: 'running',
    prepareFreeze: () =>
      process.attempt('prepare to freeze the disk', vmmCodes, () => process.disk.prepare()),
    foldDisk: () => process.attempt('fold the disk', vmmCodes, () => process.disk.fold()),
    pause: () =>
      process.step('pause', 'pause the machine', vmmCodes, async () => {
        await process.qmp.execute('stop', {});
        return pausedVmm(process);
      }),
  };
}
