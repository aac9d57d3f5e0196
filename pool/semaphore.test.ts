import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRestoreSemaphore, type RestorePriority } from './semaphore.ts';

/** Enters by name and keeps the releases of those who got in, in order. */
function line(limit: number) {
  const semaphore = createRestoreSemaphore({ limit });
  const granted: string[] = [];
  const releases = new Map<string, () => void>();
  const enter = (name: string, priority: RestorePriority) =>
    semaphore.request(priority, (release) => {
      granted.push(name);
      releases.set(name, release);
    });
  return { semaphore, granted, enter, leave: (name: string) => releases.get(name)?.() };
}

test('live restores come before refills, and each kind is first-come', () => {
  const { granted, enter, leave } = line(1);
  enter('holder', 'live');
  enter('refill 1', 'refill');
  enter('live 1', 'live');
  enter('live 2', 'live');
  enter('refill 2', 'refill');
  for (const name of ['holder', 'live 1', 'live 2', 'refill 1']) leave(name);
  assert.deepEqual(granted, ['holder', 'live 1', 'live 2', 'refill 1', 'refill 2']);
});

test('refills leave one permit free, so that a live restore never waits behind them', () => {
  const { granted, enter, leave } = line(3);
  for (const name of ['a', 'b', 'c']) enter(name, 'refill');
  assert.deepEqual(granted, ['a', 'b']);
  enter('live', 'live');
  assert.deepEqual(granted, ['a', 'b', 'live']);
  leave('live');
  assert.deepEqual(granted, ['a', 'b', 'live']);
  leave('a');
  assert.deepEqual(granted, ['a', 'b', 'live', 'c']);
});

test('a refill which is promoted stands behind the live ones that are there', () => {
  const { granted, enter, leave } = line(1);
  enter('holder', 'live');
  const promoted = enter('promoted', 'refill');
  enter('live', 'live');
  promoted.promote();
  promoted.promote();
  enter('later', 'live');
  for (const name of ['holder', 'live', 'promoted', 'later']) leave(name);
  assert.deepEqual(granted, ['holder', 'live', 'promoted', 'later']);
});

test('a permit given back twice is given back once, and a cancelled request takes none', () => {
  const { semaphore, granted, enter, leave } = line(2);
  enter('a', 'live');
  enter('b', 'live');
  enter('cancelled', 'live').cancel();
  leave('a');
  leave('a');
  assert.deepEqual(semaphore.stats(), { limit: 2, inUse: 1, live: 0, refill: 0 });
  enter('c', 'live');
  enter('d', 'live');
  assert.deepEqual(granted, ['a', 'b', 'c']);
});
