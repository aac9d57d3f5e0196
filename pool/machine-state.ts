/** The life of one machine as the pool sees it: a closed union, and the only function that moves between its members. */
import { strict as assert } from 'node:assert';
import type { BlankMachine, PoolMachine } from './port.ts';

/** What an acquire asks for: a machine shared with others, one for itself alone, or the one of its session. */
export type Demand =
  | { readonly kind: 'shared' }
  | { readonly kind: 'single' }
  | { readonly kind: 'session'; readonly key: string };

/** Whose a serving machine is; fixed by its first lease. */
export type Tenancy = { readonly kind: 'unclaimed' } | Demand;

/** How a serving machine came to be. */
export type Origin = 'ready' | 'restored' | 'spawned';

export interface ServingState {
  readonly kind: 'serving';
  readonly machine: PoolMachine;
  readonly origin: Origin;
  readonly tenancy: Tenancy;
  /** Invocations it is answering now. */
  readonly leases: number;
  /** Leases ever granted, and of these the ones that ended. */
  readonly granted: number;
  readonly finished: number;
  /** Set when it takes no more leases; the reason it will be discarded for. */
  readonly retiring: string | null;
}

export type MachineState =
  | { readonly kind: 'spawning' }
  | { readonly kind: 'blank'; readonly blank: BlankMachine }
  /** Waits for a restore permit; the blank is still ours. */
  | { readonly kind: 'queued'; readonly blank: BlankMachine; readonly origin: 'restored' | 'spawned' }
  /** The source has consumed the blank. */
  | { readonly kind: 'restoring'; readonly awake: boolean; readonly origin: 'restored' | 'spawned' }
  | { readonly kind: 'ready'; readonly machine: PoolMachine }
  | { readonly kind: 'waking'; readonly machine: PoolMachine }
  | ServingState
  | { readonly kind: 'disposing'; readonly reason: string }
  | { readonly kind: 'disposed'; readonly reason: string };

export type MachineStateKind = MachineState['kind'];

export type MachineEvent =
  | { readonly type: 'spawned'; readonly blank: BlankMachine }
  /** `afterSpawn`: an invocation has been waiting since before the VMM was started. */
  | { readonly type: 'enqueue'; readonly afterSpawn: boolean }
  | { readonly type: 'load'; readonly awake: boolean }
  | { readonly type: 'restored'; readonly machine: PoolMachine }
  /** A parked machine of an earlier run of the edge. */
  | { readonly type: 'adopted'; readonly machine: PoolMachine }
  | { readonly type: 'wake' }
  | { readonly type: 'woken' }
  | { readonly type: 'lease'; readonly demand: Demand }
  | { readonly type: 'release' }
  | { readonly type: 'retire'; readonly reason: string }
  | { readonly type: 'discard'; readonly reason: string }
  | { readonly type: 'disposed' };

const serving = (machine: PoolMachine, origin: Origin): ServingState => ({
  kind: 'serving',
  machine,
  origin,
  tenancy: { kind: 'unclaimed' },
  leases: 0,
  granted: 0,
  finished: 0,
  retiring: null,
});

/** The state after `event`. An event that its state does not know is a defect of the pool and throws. */
export function transition(state: MachineState, event: MachineEvent): MachineState {
  switch (event.type) {
    case 'spawned':
      if (state.kind === 'spawning') return { kind: 'blank', blank: event.blank };
      break;
    case 'enqueue':
      if (state.kind === 'blank')
        return { kind: 'queued', blank: state.blank, origin: event.afterSpawn ? 'spawned' : 'restored' };
      break;
    case 'load':
      if (state.kind === 'queued') return { kind: 'restoring', awake: event.awake, origin: state.origin };
      break;
    case 'restored':
      if (state.kind === 'restoring')
        return state.awake ? serving(event.machine, state.origin) : { kind: 'ready', machine: event.machine };
      break;
    case 'adopted':
      if (state.kind === 'spawning') return { kind: 'ready', machine: event.machine };
      break;
    case 'wake':
      if (state.kind === 'ready') return { kind: 'waking', machine: state.machine };
      break;
    case 'woken':
      if (state.kind === 'waking') return serving(state.machine, 'ready');
      break;
    case 'lease':
      if (state.kind === 'serving' && state.retiring === null) {
        const { tenancy } = state;
        assert(
          tenancy.kind === 'unclaimed' || isSameDemand(tenancy, event.demand),
          'a machine changed its tenant',
        );
        return { ...state, tenancy: event.demand, leases: state.leases + 1, granted: state.granted + 1 };
      }
      break;
    case 'release':
      if (state.kind === 'serving' && state.leases > 0)
        return { ...state, leases: state.leases - 1, finished: state.finished + 1 };
      break;
    case 'retire':
      if (state.kind === 'serving') return { ...state, retiring: state.retiring ?? event.reason };
      break;
    case 'discard':
      if (state.kind !== 'disposing' && state.kind !== 'disposed')
        return { kind: 'disposing', reason: event.reason };
      break;
    case 'disposed':
      if (state.kind === 'disposing') return { kind: 'disposed', reason: state.reason };
      break;
  }
  assert.fail(`a ${state.kind} machine knows no ${event.type}`);
}

/** Whether a machine taken for `a` may also answer `b`. Two single demands never share. */
export function isSameDemand(a: Demand, b: Demand): boolean {
  if (a.kind === 'session') return b.kind === 'session' && a.key === b.key;
  return a.kind === 'shared' && b.kind === 'shared';
}

/** What the pool must dispose of in this state; while an operation of the source runs, that operation's result is. */
export function ownedBy(state: MachineState): BlankMachine | PoolMachine | undefined {
  switch (state.kind) {
    case 'blank':
    case 'queued':
      return state.blank;
    case 'ready':
    case 'waking':
    case 'serving':
      return state.machine;
    default:
      return undefined;
  }
}
