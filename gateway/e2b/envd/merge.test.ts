import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../../../sdk/index.ts';
import { merge } from './merge.ts';

/** Timers ring when they are told to. */
function manualClock() {
  const timers = new Set<() => void>();
  const clock: Clock = {
    now: () => 0,
    monotonic: () => 0,
    schedule(_delayMs, callback) {
      timers.add(callback);
      return () => timers.delete(callback);
    },
  };
  return {
    clock,
    timers,
    ring: () => {
      for (const callback of [...timers]) callback();
    },
  };
}

async function* from(...items: string[]): AsyncGenerator<string> {
  yield* items;
}

test('streams become one that ends with the last of them, and silence is filled', async () => {
  const { clock, timers, ring } = manualClock();
  const { promise, resolve } = Promise.withResolvers<void>();
  async function* slow(): AsyncGenerator<string> {
    await promise;
    yield 'late';
  }
  const all = merge([from('a', 'b'), slow()], { clock, keepAliveMs: 1, keepAlive: () => 'alive' });
  assert.deepEqual([(await all.next()).value, (await all.next()).value].sort(), ['a', 'b']);
  const next = all.next();
  await new Promise(setImmediate);
  ring();
  assert.equal((await next).value, 'alive');
  resolve();
  assert.equal((await all.next()).value, 'late');
  assert.equal((await all.next()).done, true);
  assert.equal(timers.size, 0);
});

test('one that fails fails the whole, and the others are told to stop', async () => {
  const { clock, timers } = manualClock();
  let isStopped = false;
  async function* endless(): AsyncGenerator<string> {
    try {
      for (;;) {
        yield 'again';
        await new Promise(setImmediate);
      }
    } finally {
      isStopped = true;
    }
  }
  async function* failing(): AsyncGenerator<string> {
    yield 'once';
    throw new Error('broken');
  }
  await assert.rejects(async () => {
    for await (const _ of merge([endless(), failing()], { clock, keepAliveMs: 1, keepAlive: () => '' }));
  }, /broken/);
  while (!isStopped) await new Promise(setImmediate);
  assert.equal(timers.size, 0);
});
