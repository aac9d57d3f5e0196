/** Carries out what moves a machine up or out: spawn, restore, wake, dispose. Decides nothing. */
import { type Clock, GatewayError } from '../sdk/index.ts';
import { ownedBy } from './machine-state.ts';
import type { BlankMachine, MachineSource, PoolMachine } from './port.ts';
import type { RestorePriority, RestoreSemaphore } from './semaphore.ts';
import type { Slot } from './slot.ts';
import type { Waiter } from './waiters.ts';

/** Where a machine failed. `gone`: it ended by itself. `stale`: it is of another version than its source. */
export type FailedStage = 'spawn' | 'restore' | 'wake' | 'gone' | 'stale' | 'dispose';

export interface Failure {
  readonly stage: FailedStage;
  readonly error: unknown;
  /** Waiters who had counted on it. */
  readonly claims: readonly Waiter[];
}

/** What the pool is told. The callbacks may start further work on any slot. */
export interface BringUpDeps {
  readonly source: MachineSource;
  readonly clock: Clock;
  readonly restores: RestoreSemaphore;
  readonly timeoutMs: () => number;
  /** The machine became blank, ready or serving. */
  readonly landed: (slot: Slot, durationMs: number) => void;
  /** It failed and is being disposed of. */
  readonly failed: (failure: Failure) => void;
  /** A leased machine ended; it keeps its place until its leases are released. */
  readonly leasedGone: (slot: Slot) => void;
  /** It has ended, and its place is free. */
  readonly freed: (slot: Slot) => void;
  /** A defect of the pool itself, caught so that it ends no process. */
  readonly defect: (error: unknown) => void;
}

type Machine = BlankMachine | PoolMachine;

export class BringUp {
  readonly #deps: BringUpDeps;

  constructor(deps: BringUpDeps) {
    this.#deps = deps;
  }

  /** T2 → T1, once a permit is there. */
  spawn(slot: Slot, priority: RestorePriority): void {
    slot.permit = this.#deps.restores.request(priority, (release) =>
      this.#run(slot, 'spawn', {
        start: (signal) => this.#deps.source.spawnBlank({ signal }),
        land: (blank) => slot.apply({ type: 'spawned', blank }),
        release,
      }),
    );
  }

  /** T1 → T0, or serving if somebody waits for it by the time a permit is there. */
  restore(slot: Slot, priority: RestorePriority, afterSpawn: boolean): void {
    if (!afterSpawn) {
      slot.bringUpMs = 0;
      slot.hasBegun = false;
    }
    slot.apply({ type: 'enqueue', afterSpawn });
    slot.permit = this.#deps.restores.request(priority, (release) => {
      if (slot.state.kind !== 'queued') return release();
      const { blank } = slot.state;
      const awake = slot.claims.size > 0;
      slot.apply({ type: 'load', awake });
      this.#run(slot, 'restore', {
        start: (signal) => this.#deps.source.restore(blank, { signal, awake }),
        land: (machine) => slot.apply({ type: 'restored', machine }),
        release,
      });
    });
  }

  /** T0 → serving. Takes no permit: it costs a fraction of a restore. */
  wake(slot: Slot, machine: PoolMachine): void {
    slot.bringUpMs = 0;
    slot.apply({ type: 'wake' });
    this.#run(slot, 'wake', {
      start: async (signal) => {
        await machine.wake({ signal });
        return machine;
      },
      land: () => slot.apply({ type: 'woken' }),
    });
  }

  /** Takes over a parked machine that outlived an earlier run of the edge. */
  adopt(slot: Slot, machine: PoolMachine): void {
    slot.apply({ type: 'adopted', machine });
    this.#watch(slot, machine);
  }

  /** Ends what is in the slot; its place is free once that has ended. Ignored when it is ending already. */
  discard(slot: Slot, reason: string): void {
    if (slot.isEnding) return;
    const owned = ownedBy(slot.state);
    // A wake still runs on a machine we hold, so its late result is the one we dispose of anyway.
    const isWaking = slot.state.kind === 'waking';
    slot.apply({ type: 'discard', reason });
    slot.stopTimers();
    slot.permit?.cancel();
    slot.abort.abort(new GatewayError('cancelled', `machine discarded: ${reason}`, { component: 'pool' }));
    void this.#end(slot, reason, owned, isWaking ? Promise.resolve(undefined) : slot.work);
  }

  /** Discards the slot for an error and tells those who had counted on it. */
  fail(slot: Slot, stage: FailedStage, error: unknown): void {
    if (slot.isEnding) return;
    const claims = [...slot.claims];
    this.discard(slot, `${stage}_failed`);
    this.#deps.failed({ stage, error, claims });
  }

  async #end(
    slot: Slot,
    reason: string,
    owned: Machine | undefined,
    work: Promise<Machine | undefined>,
  ): Promise<void> {
    try {
      await owned?.dispose(reason);
      await (await work)?.dispose(reason);
    } catch (error) {
      this.#guard(() => this.#deps.failed({ stage: 'dispose', error, claims: [] }));
    }
    this.#guard(() => {
      slot.apply({ type: 'disposed' });
      this.#deps.freed(slot);
    });
  }

  /** Runs one operation of the source within its budget. The permit is held until the source is really done. */
  #run<Result extends Machine>(
    slot: Slot,
    stage: 'spawn' | 'restore' | 'wake',
    operation: {
      readonly start: (signal: AbortSignal) => Promise<Result>;
      readonly land: (result: Result) => void;
      readonly release?: () => void;
    },
  ): void {
    const { clock } = this.#deps;
    slot.hasBegun = true;
    const startedAt = clock.monotonic();
    const timeoutMs = this.#deps.timeoutMs();
    const overdue = () => {
      const error = new GatewayError('restore_timeout', `${stage} took over ${timeoutMs} ms`, {
        component: 'pool',
      });
      this.#guard(() => this.fail(slot, stage, error));
    };
    slot.setTimer('work', clock.schedule(timeoutMs, overdue));
    const settled = () => {
      slot.setTimer('work');
      operation.release?.();
    };
    slot.work = (async () => operation.start(slot.abort.signal))().then(
      (result) => {
        settled();
        if (slot.isEnding) return result;
        this.#guard(() => {
          const durationMs = clock.monotonic() - startedAt;
          slot.bringUpMs += durationMs;
          operation.land(result);
          if (stage !== 'wake') this.#watch(slot, result);
          this.#deps.landed(slot, durationMs);
        });
        return undefined;
      },
      (error: unknown) => {
        settled();
        this.#guard(() => this.fail(slot, stage, error));
        return undefined;
      },
    );
  }

  /** A machine that ends by itself leaves the pool, at once when idle, after its leases otherwise. */
  #watch(slot: Slot, machine: Machine): void {
    void machine.gone.then(({ reason }) =>
      this.#guard(() => {
        if (!slot.holds(machine)) return;
        if (slot.state.kind !== 'serving' || slot.state.leases === 0) {
          return this.fail(
            slot,
            'gone',
            new GatewayError('guest_unreachable', `the machine ended: ${reason}`),
          );
        }
        slot.apply({ type: 'retire', reason: 'gone' });
        this.#deps.leasedGone(slot);
      }),
    );
  }

  #guard(body: () => void): void {
    try {
      body();
    } catch (error) {
      this.#deps.defect(error);
    }
  }
}
