import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blocksOf } from '../schedule/source.ts';
import { type DropReason, driveOpenLoop, type LaunchedArrival } from './open-loop.ts';

/** Time that only the pacer moves, by exactly what it is asked to wait. */
function virtualDrive(instants: readonly number[], over: { lateByMs?: number; keepsOpen?: boolean } = {}) {
  let nowMs = 0;
  const launched: LaunchedArrival[] = [];
  const dropped: DropReason[] = [];
  const deps = {
    source: blocksOf(instants.map((atMs) => ({ atMs, target: 0, workMs: 0 }))),
    launcher: {
      launch: (arrival: LaunchedArrival) => void launched.push(arrival),
      get inFlight() {
        return over.keepsOpen ? launched.length : 0;
      },
      idle: async () => undefined,
    },
    observer: {
      launched: () => undefined,
      dropped: (_at: number, reason: DropReason) => void dropped.push(reason),
    },
    pacer: (waitMs: number, _gapMs: number, callback: () => void) => {
      nowMs += waitMs + (over.lateByMs ?? 0);
      const immediate = setImmediate(callback);
      return () => clearImmediate(immediate);
    },
    now: () => nowMs,
  };
  return { deps, launched, dropped };
}
const options = { maxInFlight: 100, dropAfterMs: 1_000, signal: new AbortController().signal };

test('every arrival is launched at its instant, in order, over block borders', async () => {
  const instants = Array.from({ length: 10_000 }, (_, index) => index * 0.7);
  const { deps, launched } = virtualDrive(instants);
  await driveOpenLoop(deps, options);
  assert.deepEqual(
    launched.map(({ sequence }) => sequence),
    instants.map((_, index) => index),
  );
  assert.ok(launched.every(({ sentMs, intendedMs }) => sentMs >= intendedMs && sentMs - intendedMs < 1e-6));
});

test('arrivals of one instant are all launched, however many', async () => {
  const { deps, launched } = virtualDrive(new Array(500).fill(5));
  await driveOpenLoop(deps, options);
  assert.equal(launched.length, 500);
  assert.ok(launched.every(({ sentMs }) => sentMs === 5));
});

test('a generator that wakes late sends late and says when, and drops only what is too late', async () => {
  const late = virtualDrive([10, 20, 30], { lateByMs: 15 });
  await driveOpenLoop(late.deps, options);
  assert.deepEqual(
    late.launched.map(({ intendedMs, sentMs }) => [intendedMs, sentMs]),
    [
      [10, 25],
      [20, 25],
      [30, 45],
    ],
  );
  const behind = virtualDrive([10, 20], { lateByMs: 5_000 });
  await driveOpenLoop(behind.deps, options);
  assert.deepEqual(behind.dropped, ['generator behind', 'generator behind']);
});

test('arrivals beyond the in-flight limit are dropped, not queued', async () => {
  const { deps, launched, dropped } = virtualDrive([1, 2, 3, 4], { keepsOpen: true });
  await driveOpenLoop(deps, { ...options, maxInFlight: 3 });
  assert.equal(launched.length, 3);
  assert.deepEqual(dropped, ['in-flight limit']);
});

test('an abort ends the wait for a far arrival, and launches nothing more', async () => {
  const { deps, launched } = virtualDrive([3_600_000]);
  const abort = new AbortController();
  let cancelled = 0;
  const driving = driveOpenLoop(
    {
      ...deps,
      pacer: () => {
        setImmediate(() => abort.abort());
        return () => {
          cancelled += 1;
        };
      },
    },
    { ...options, signal: abort.signal },
  );
  await driving;
  assert.equal(launched.length, 0);
  assert.equal(cancelled, 1);
});

test('a failing source rejects the drive', async () => {
  const { deps } = virtualDrive([]);
  const source = {
    next: () => Promise.reject(new Error('the trace ended in the middle of a row')),
  };
  await assert.rejects(driveOpenLoop({ ...deps, source }, options), /middle of a row/);
});
