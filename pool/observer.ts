/** How metrics and logs watch a pool. */
import type { ErrorCode, MachineId, StartType, VersionDigest } from '../sdk/index.ts';
import type { MachineEvent, MachineStateKind } from './machine-state.ts';

export interface PoolTransition {
  readonly digest: VersionDigest;
  /** Null while the VMM is being started. */
  readonly machineId: MachineId | null;
  readonly from: MachineStateKind;
  readonly to: MachineStateKind;
  readonly event: MachineEvent['type'];
  /** Why, for a machine that is being discarded. */
  readonly reason: string | null;
}

/** Every member is optional. They are called in the middle of the pool's work: be quick, and call nothing back. */
export interface PoolObserver {
  readonly transition?: (transition: PoolTransition) => void;
  readonly leased?: (facts: {
    readonly digest: VersionDigest;
    readonly start: StartType;
    readonly queueMs: number;
    readonly restoreMs: number;
  }) => void;
  readonly refused?: (facts: { readonly digest: VersionDigest; readonly code: ErrorCode }) => void;
  /** A defect of the pool that was caught: log it as an error. */
  readonly defect?: (error: unknown) => void;
}

/**
 * The same observer with every member present and none that throws: the pool has moved already when it tells, and a
 * defect in a metric must not stop what follows from the move. `defect` is told instead.
 */
export function guardObserver(
  observer: PoolObserver,
  defect: (error: unknown) => void,
): Required<Omit<PoolObserver, 'defect'>> {
  const guarded =
    <Facts>(listener: ((facts: Facts) => void) | undefined) =>
    (facts: Facts): void => {
      try {
        listener?.(facts);
      } catch (error) {
        defect(error);
      }
    };
  return {
    transition: guarded(observer.transition),
    leased: guarded(observer.leased),
    refused: guarded(observer.refused),
  };
}
