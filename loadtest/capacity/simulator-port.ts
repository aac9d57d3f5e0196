/**
 * What `loadtest plan` needs from the pool simulator. `pool/` owns the simulator (the pool's own code under a virtual
 * clock); the command-line assembly passes it in, because `loadtest` may import nothing but the SDK.
 */

/** One invocation to be simulated. */
export interface SimulatedArrival {
  readonly atMs: number;
  /** Index of the template. */
  readonly template: number;
  /** How long a machine is busy with it, milliseconds. */
  readonly busyMs: number;
}

/** What a node and its templates are like. */
export interface SimulatedNode {
  /** Memory for machines, bytes. */
  readonly memoryBytes: number;
  readonly maxMachines: number;
  /** Memory of a machine that has served, bytes: private pages and the VMM's own. */
  readonly machineBytes: number;
  /** Memory of a blank VMM, bytes. */
  readonly blankBytes: number;
  /** State into a blank VMM until it serves, milliseconds. */
  readonly restoreMs: number;
  /** Starting a blank VMM, milliseconds. */
  readonly spawnMs: number;
  /** First requests of a restored machine before it counts as ready, milliseconds; callers do not wait for them. */
  readonly primeMs: number;
  /** From ready to serving, milliseconds. */
  readonly wakeMs: number;
  readonly ready: number;
  readonly blank: number;
  readonly maxPerTemplate: number;
  readonly idleMs: number;
}

/** What the simulation saw. */
export interface SimulationReport {
  readonly invocations: number;
  readonly refused: number;
  /** Share answered by a machine that was ready or reused, 0–1. */
  readonly hitRate: number;
  /** Wait added by the pool, milliseconds. */
  readonly addedWaitP50Ms: number;
  readonly addedWaitP99Ms: number;
  readonly peakMachines: number;
  readonly memoryByteHours: number;
}

export interface SimulationRequest {
  readonly nodes: number;
  readonly node: SimulatedNode;
  readonly seed: number;
  /** By template: most of its invocations that are open at once. Says how many nodes must serve it. */
  readonly templatePeaks: readonly number[];
}

/** Runs a trace against a number of nodes. Arrivals come in order; templates are spread over nodes by the simulator. */
export interface PoolSimulator {
  simulate(arrivals: AsyncIterable<SimulatedArrival>, request: SimulationRequest): Promise<SimulationReport>;
}
