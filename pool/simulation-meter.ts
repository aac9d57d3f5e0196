/** Adds up what machines cost over virtual time, from the transitions of the pools that hold them. */
import type { MachineStateKind } from './machine-state.ts';
import type { PoolTransition } from './observer.ts';

/** What a machine holds of the host's memory: private pages and the VMM's own. */
export interface MemoryCosts {
  readonly blankMiB: number;
  readonly readyMiB: number;
  readonly servingMiB: number;
}

export interface SimulationMeter {
  readonly observe: (change: PoolTransition) => void;
  /** Machine-hours and GiB-hours up to `nowMs`, and the most machines there were at once. */
  read(nowMs: number): {
    readonly machineHours: number;
    readonly memoryGiBHours: number;
    readonly peakMachines: number;
  };
  /** Ready machines which ended without having served. */
  readonly wasted: number;
}

function memoryOf(costs: MemoryCosts, kind: MachineStateKind): number {
  switch (kind) {
    case 'spawning':
    case 'disposing':
    case 'disposed':
      return 0;
    case 'blank':
    case 'queued':
      return costs.blankMiB;
    case 'restoring':
    case 'ready':
    case 'waking':
      return costs.readyMiB;
    case 'serving':
      return costs.servingMiB;
  }
}

const hourMs = 3_600_000;

/** `now`: monotonic milliseconds from 0. */
export function createSimulationMeter(deps: {
  readonly now: () => number;
  readonly costs: MemoryCosts;
}): SimulationMeter {
  const { now, costs } = deps;
  let sinceMs = 0;
  let machines = 0;
  let memoryMiB = 0;
  let machineMs = 0;
  let memoryMiBMs = 0;
  let peakMachines = 0;
  let wasted = 0;

  function advance(toMs: number): void {
    machineMs += machines * (toMs - sinceMs);
    memoryMiBMs += memoryMiB * (toMs - sinceMs);
    sinceMs = toMs;
  }

  return {
    observe({ from, to, event, reason }) {
      advance(now());
      memoryMiB += memoryOf(costs, to) - memoryOf(costs, from);
      if (event === 'spawned') machines += 1;
      if (event === 'discard' && from !== 'spawning') machines -= 1;
      if (event === 'discard' && from === 'ready' && reason !== 'pool_disposed') wasted += 1;
      peakMachines = Math.max(peakMachines, machines);
    },
    read(nowMs) {
      advance(nowMs);
      return { machineHours: machineMs / hourMs, memoryGiBHours: memoryMiBMs / 1024 / hourMs, peakMachines };
    },
    get wasted() {
      return wasted;
    },
  };
}
