/** What the pool needs from a machine and from whoever makes them. The edge provides both; tests fake both. */
import type { MachineId, VersionDigest } from '../sdk/index.ts';

/** A blank VMM: started, base memory mapped, waiting for device state. */
export interface BlankMachine {
  readonly id: MachineId;
  /** Settles when the VMM ended, for whatever reason. Never rejects. */
  readonly gone: Promise<{ readonly reason: string }>;
  /** Ends it and removes all it owned. Idempotent, never rejects. */
  dispose(reason: string): Promise<void>;
}

/** A restored machine. Parked (vCPUs stopped) when the source hands it over; `wake` makes it serve. */
export interface PoolMachine {
  readonly id: MachineId;
  readonly digest: VersionDigest;
  readonly gone: Promise<{ readonly reason: string }>;
  /**
   * Parked → serving: resume vCPUs, step the clock, stir entropy, set the identity, run `afterRestore`.
   * Rejects when any step fails; the pool then disposes the machine.
   */
  wake(options: { readonly signal: AbortSignal }): Promise<void>;
  /** Serving → parked. */
  park(): Promise<void>;
  dispose(reason: string): Promise<void>;
}

/**
 * Makes machines of one version. Bounding and single-flight are the pool's affair, not the source's. An operation whose
 * signal is aborted must settle soon: until it does, it holds a restore permit of the node and a place of the pool. If
 * it ends well all the same, the pool disposes of what it made.
 */
export interface MachineSource {
  readonly digest: VersionDigest;
  /** T2 → T1. */
  spawnBlank(options: { readonly signal: AbortSignal }): Promise<BlankMachine>;
  /**
   * T1 → T0: loads the state, primes, parks. Consumes the blank in every outcome: on failure it is already disposed.
   * With `awake: true` it skips the priming request and parking, since a live invocation is waiting for this machine; it
   * then is as after {@link PoolMachine.wake}.
   */
  restore(
    blank: BlankMachine,
    options: { readonly signal: AbortSignal; readonly awake: boolean },
  ): Promise<PoolMachine>;
}
