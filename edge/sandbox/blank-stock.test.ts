import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newNodeId } from '../../sdk/index.ts';
import type { BlankVmm, Vmm } from '../vmm/port.ts';
import type { Base } from './bases.ts';
import { BlankStock } from './blank-stock.ts';
import { Room } from './room.ts';
import { sandboxRecord } from './testing/records.ts';
import { stoppedClock } from './testing/stopped-clock.ts';

const base: Base = { id: '1-2', memoryPath: '/memory', diskPath: '/disk' };
const { origin } = sandboxRecord('a');
const never = new AbortController().signal;
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** VMMs that start when they are told to. */
function setting({ perBase = 3, idleMs = 60_000, maxMachines = 10 } = {}) {
  const time = stoppedClock();
  const starts: (() => void)[] = [];
  const counts = { started: 0, alive: 0 };
  const vmm = {
    async spawnBlank({ id }: { readonly id: string }): Promise<BlankVmm> {
      counts.started += 1;
      await new Promise<void>((resolve) => starts.push(resolve));
      counts.alive += 1;
      const { promise: exited, resolve } = Promise.withResolvers<void>();
      const dispose = async () => {
        counts.alive -= 1;
        resolve();
      };
      return { id, exited, dispose } as unknown as BlankVmm;
    },
  } as unknown as Vmm;
  const deps = { maxMachines, pooled: () => 0, shedPool: () => false, onFreed: () => {} };
  const room: Room = new Room({ ...deps, shedBlank: () => stock.shed() });
  const stock: BlankStock = new BlankStock(
    { vmm, node: newNodeId(), clock: time.clock, room: () => room, onStarted: () => {} },
    { perBase, idleMs },
  );
  /** Lets the start under way take so long. */
  const finishStart = async (tookMs: number) => {
    time.advance(tookMs);
    starts.shift()?.();
    await turn();
  };
  return { ...time, stock, counts, starts, room, finishStart };
}

test('blanks are refilled one at a time, with rests of four times what a start took', async () => {
  const { stock, counts, advance, finishStart } = setting();
  stock.replenish(base, origin);
  advance(399);
  assert.equal(counts.started, 0, 'not while children are being made');
  advance(1);
  assert.equal(counts.started, 1);
  await finishStart(50);
  advance(199);
  assert.equal(counts.started, 1);
  advance(1);
  assert.equal(counts.started, 2);
  await finishStart(10);
  advance(40);
  await finishStart(10);
  advance(50_000);
  assert.deepEqual(counts, { started: 3, alive: 3 }, 'no more than are wanted');
  await stock.dispose();
  assert.equal(counts.alive, 0);
});

test('a child that comes takes what waits and puts refilling off', async () => {
  const { stock, counts, advance, finishStart } = setting({ perBase: 2 });
  stock.replenish(base, origin);
  advance(400);
  await finishStart(50);
  await stock.take(base, origin, never);
  stock.replenish(base, origin);
  advance(399);
  assert.equal(counts.started, 1);
  advance(1);
  assert.equal(counts.started, 2);
  await finishStart(1);
  await stock.dispose();
});

test('a base that nobody uses any more loses its blanks, also one that comes too late', async () => {
  const { stock, counts, advance, finishStart, room, timers } = setting({ perBase: 2, idleMs: 1_000 });
  stock.replenish(base, origin);
  advance(400);
  await finishStart(100);
  advance(400);
  assert.equal(counts.started, 2);
  advance(100);
  await finishStart(0);
  await turn();
  assert.deepEqual([counts.alive, room.held, timers.size], [0, 0, 0]);
});

test('a full node gives waiting blanks up for whoever needs the place', async () => {
  const { stock, counts, advance, finishStart, room } = setting({ perBase: 1, maxMachines: 1 });
  stock.replenish(base, origin);
  advance(400);
  await finishStart(1);
  const place = await room.take(never);
  assert.deepEqual([counts.alive, room.held], [0, 1]);
  place[Symbol.dispose]();
  await stock.dispose();
});
