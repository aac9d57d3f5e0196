import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock, type VersionDigest } from '../../sdk/index.ts';
import { createMemoryBudget, readAvailableBytes } from './memory-budget.ts';

const mib = 2 ** 20;
const digest = `sha256:${'0'.repeat(64)}` as VersionDigest;

function budgetWith(availableMiB: number | null) {
  const host = { availableMiB, now: 0 };
  const budget = createMemoryBudget(
    {
      clock: { ...systemClock, monotonic: () => host.now },
      availableBytes: () => (host.availableMiB === null ? null : host.availableMiB * mib),
    },
    { reserveBytes: 512 * mib },
  );
  return { host, budget, admit: (kind: 'live' | 'refill') => budget.admit(kind, digest) };
}

test('refills stop before invocations do, and a refusal says limit, what is left and the knob', () => {
  const { host, admit } = budgetWith(800);
  assert.equal(admit('refill').kind, 'refused');
  assert.equal(admit('live').kind, 'granted');
  host.now += 5_000;
  host.availableMiB = 500;
  const verdict = admit('live');
  assert.ok(verdict.kind === 'refused');
  assert.equal(verdict.error.code, 'node_at_capacity');
  assert.deepEqual(verdict.error.details.extra, { limit: 512, used: 500, knob: 'memoryReserveMiB' });
});

test('a burst is not admitted on memory that its first machines are about to take', () => {
  const { host, admit } = budgetWith(512 + 4 * 64);
  const verdicts = Array.from({ length: 8 }, () => admit('live').kind);
  assert.equal(verdicts.filter((kind) => kind === 'granted').length, 4);
  host.now += 5_000;
  assert.equal(admit('live').kind, 'granted', 'by then they show in what the host has left');
});

test('a host that is short of its reserve says so, and one that does not tell admits', () => {
  const { host, budget } = budgetWith(600);
  assert.equal(budget.isShort(), false);
  host.availableMiB = 400;
  host.now += 1_000;
  assert.equal(budget.isShort(), true);
  const silent = budgetWith(null);
  assert.deepEqual([silent.budget.isShort(), silent.admit('refill').kind], [false, 'granted']);
});

test('this host tells', () => {
  assert.ok((readAvailableBytes() ?? 0) > mib);
});
