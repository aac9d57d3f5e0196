export type { AdmissionKind, AdmissionVerdict, Admit } from './admission.ts';
export type { FailedStage } from './bring-up.ts';
export type { PoolDeps } from './engine.ts';
export type { Lease, LeaseOutcome } from './lease.ts';
export type { MachineStateKind } from './machine-state.ts';
export type { PoolObserver, PoolTransition } from './observer.ts';
export { checkPoolOptions, type PoolLimits, type PoolOptions, type ReusePolicy } from './options.ts';
export { createPool, type Pool } from './pool.ts';
export {
  createPools,
  type Pools,
  type PoolsDeps,
  type PoolsOptions,
  type PoolsStats,
  type ServedVersion,
} from './pool-set.ts';
export type { BlankMachine, MachineSource, PoolMachine } from './port.ts';
export type { AcquireRequest } from './reception.ts';
export { createRestoreSemaphore, type RestorePriority, type RestoreSemaphore } from './semaphore.ts';
export type { SheddableKind } from './shedding.ts';
export { createSeededRandom, type SimulatedCall, syntheticTrace } from './simulated-trace.ts';
export { type MachineCosts, type SimulationOptions, type SimulationReport, simulate } from './simulator.ts';
export { describeSizing, type Sizing, type SizingDecision } from './sizing.ts';
export { hitRate, type PoolStats } from './stats.ts';
export { createVirtualClock, type VirtualClock } from './virtual-clock.ts';
export { type FloorWindow, type Weekday, weekdays } from './windows.ts';
