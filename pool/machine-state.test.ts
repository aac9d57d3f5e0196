import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isSameDemand, type MachineEvent, type MachineState, ownedBy, transition } from './machine-state.ts';
import type { BlankMachine, PoolMachine } from './port.ts';

const blank = { id: 'blank' } as unknown as BlankMachine;
const machine = { id: 'machine' } as unknown as PoolMachine;

const events: MachineEvent[] = [
  { type: 'spawned', blank },
  { type: 'enqueue', afterSpawn: false },
  { type: 'enqueue', afterSpawn: true },
  { type: 'load', awake: false },
  { type: 'load', awake: true },
  { type: 'restored', machine },
  { type: 'adopted', machine },
  { type: 'wake' },
  { type: 'woken' },
  { type: 'lease', demand: { kind: 'shared' } },
  { type: 'release' },
  { type: 'retire', reason: 'test' },
  { type: 'discard', reason: 'test' },
  { type: 'disposed' },
];

/** Applies the events a state knows and skips the others. */
function walk(steps: readonly MachineEvent[]): MachineState {
  let state: MachineState = { kind: 'spawning' };
  for (const step of steps) {
    try {
      state = transition(state, step);
    } catch (error) {
      assert.ok(error instanceof assert.AssertionError);
    }
  }
  return state;
}

test('along any path leases are what was granted less what has finished, and the end is final', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...events), { maxLength: 40 }), (steps) => {
      const state = walk(steps);
      if (state.kind === 'serving') {
        assert.ok(state.leases >= 0);
        assert.equal(state.leases, state.granted - state.finished);
        assert.equal(state.tenancy.kind === 'unclaimed', state.granted === 0);
      }
      const ended = walk([...steps, { type: 'discard', reason: 'x' }, { type: 'disposed' }]);
      assert.equal(ended.kind, 'disposed');
      for (const event of events) assert.throws(() => transition(ended, event), assert.AssertionError);
    }),
    { seed: 11, numRuns: 300 },
  );
});

test('the pool owns a blank until it is loaded, then nothing, then the machine', () => {
  let state = walk([{ type: 'spawned', blank }]);
  assert.equal(ownedBy(state), blank);
  state = transition(state, { type: 'enqueue', afterSpawn: false });
  assert.equal(ownedBy(state), blank);
  state = transition(state, { type: 'load', awake: true });
  assert.equal(ownedBy(state), undefined);
  state = transition(state, { type: 'restored', machine });
  assert.equal(ownedBy(state), machine);
  assert.equal(state.kind === 'serving' && state.origin, 'restored');
});

test('a machine keeps its first tenant, and the first reason to retire', () => {
  const sessionA = { kind: 'session', key: 'a' } as const;
  const base: MachineEvent[] = [
    { type: 'adopted', machine },
    { type: 'wake' },
    { type: 'woken' },
    { type: 'lease', demand: sessionA },
  ];
  const state = walk(base);
  assert.throws(() => transition(state, { type: 'lease', demand: { kind: 'session', key: 'b' } }), /tenant/);
  assert.throws(() => transition(state, { type: 'lease', demand: { kind: 'shared' } }), /tenant/);
  const retired = walk([...base, { type: 'retire', reason: 'gone' }, { type: 'retire', reason: 'lifetime' }]);
  assert.equal(retired.kind === 'serving' && retired.retiring, 'gone');
  assert.throws(() => transition(retired, { type: 'lease', demand: sessionA }), /knows no lease/);
});

test('single demands never share a machine, not even with each other', () => {
  assert.equal(isSameDemand({ kind: 'single' }, { kind: 'single' }), false);
  assert.equal(isSameDemand({ kind: 'shared' }, { kind: 'shared' }), true);
  assert.equal(isSameDemand({ kind: 'session', key: 'a' }, { kind: 'session', key: 'b' }), false);
});
