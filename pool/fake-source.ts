/** A {@link MachineSource} without machines, for tests and the simulator: it takes time, fails on command, and keeps accounts. */
import type { Clock, MachineId, VersionDigest } from '../sdk/index.ts';
import type { BlankMachine, MachineSource, PoolMachine } from './port.ts';

export type FakeOperation = 'spawn' | 'restore' | 'wake';

export interface FakeSourceOptions {
  readonly digest?: VersionDigest;
  /** Milliseconds; `primeMs` is added to a restore that isn't awake. */
  readonly spawnMs?: number;
  readonly restoreMs?: number;
  readonly primeMs?: number;
  readonly wakeMs?: number;
  readonly disposeMs?: number;
  /** Whether operations end well although they were aborted meanwhile, as when the abort comes too late. Default false. */
  readonly ignoresAbort?: boolean;
  /** Asked as each operation ends; an error makes it fail. */
  readonly fail?: (operation: FakeOperation) => Error | undefined;
}

export interface FakeSource extends MachineSource {
  /** VMMs that exist, counting those being started and those being disposed of. */
  readonly alive: number;
  readonly highWater: number;
  /** Rules of the port that were broken, such as a second dispose; must stay empty. */
  readonly violations: readonly string[];
  /** Blanks and machines handed to the pool and not disposed of, oldest first. */
  readonly held: ReadonlyMap<MachineId, BlankMachine | PoolMachine>;
  /** Ends a machine as a crash would. */
  kill(id: MachineId): void;
}

/** A digest made of one repeated hex digit. */
export const fakeDigest = (digit = 'a'): VersionDigest => `sha256:${digit.repeat(64)}` as VersionDigest;

export function createFakeSource(
  deps: { readonly clock: Clock },
  options: FakeSourceOptions = {},
): FakeSource {
  const {
    digest = fakeDigest(),
    spawnMs = 60,
    restoreMs = 20,
    primeMs = 300,
    wakeMs = 2,
    disposeMs = 5,
  } = options;
  const { clock } = deps;
  const held = new Map<MachineId, BlankMachine | PoolMachine>();
  const deaths = new Map<MachineId, (end: { readonly reason: string }) => void>();
  const violations: string[] = [];
  let made = 0;
  let alive = 0;
  let highWater = 0;

  const sleep = (ms: number): Promise<void> => new Promise((resolve) => void clock.schedule(ms, resolve));

  /** Takes its time, then fails or not. An abort is noticed at the end, as by a real VMM that is busy loading. */
  async function work(operation: FakeOperation, ms: number, signal: AbortSignal): Promise<void> {
    await sleep(ms);
    const error = options.fail?.(operation);
    if (error !== undefined) throw error;
    if (options.ignoresAbort !== true) signal.throwIfAborted();
  }

  /** One VMM as the pool holds it. A restore turns the blank into a machine: same VMM, other object. */
  function hold<Extra extends object>(id: MachineId, extra: Extra): Extra & BlankMachine {
    const { promise, resolve } = Promise.withResolvers<{ readonly reason: string }>();
    deaths.set(id, resolve);
    let isDisposed = false;
    const machine = {
      ...extra,
      id,
      gone: promise,
      async dispose(reason: string) {
        if (isDisposed) violations.push(`${id} disposed of twice`);
        if (held.get(id) !== machine) violations.push(`${id} disposed of after it was consumed`);
        isDisposed = true;
        held.delete(id);
        await sleep(disposeMs);
        alive -= 1;
        resolve({ reason });
      },
    };
    held.set(id, machine as unknown as BlankMachine | PoolMachine);
    return machine;
  }

  return {
    digest,
    held,
    violations,
    get alive() {
      return alive;
    },
    get highWater() {
      return highWater;
    },
    kill(id) {
      deaths.get(id)?.({ reason: 'killed' });
    },
    async spawnBlank({ signal }) {
      made += 1;
      const id = `fake${String(made).padStart(16, '0')}` as MachineId;
      alive += 1;
      highWater = Math.max(highWater, alive);
      try {
        await work('spawn', spawnMs, signal);
      } catch (error) {
        alive -= 1;
        throw error;
      }
      return hold(id, {});
    },
    async restore(blank, { signal, awake }) {
      if (held.get(blank.id) !== blank)
        violations.push(`${blank.id} restored, but it was not a blank of ours`);
      held.delete(blank.id);
      try {
        await work('restore', restoreMs + (awake ? 0 : primeMs), signal);
      } catch (error) {
        alive -= 1;
        throw error;
      }
      let isParked = !awake;
      return hold(blank.id, {
        digest,
        async wake(wakeOptions: { readonly signal: AbortSignal }) {
          if (!isParked) violations.push(`${blank.id} woken while awake`);
          await work('wake', wakeMs, wakeOptions.signal);
          isParked = false;
        },
        async park() {
          isParked = true;
        },
      });
    },
  };
}
