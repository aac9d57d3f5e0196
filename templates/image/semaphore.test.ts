import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { createSemaphore } from './semaphore.ts';

const never = new AbortController().signal;

test('waiters are served first come, first served', async () => {
  const semaphore = createSemaphore(1);
  const held = await semaphore.acquire({ signal: never });
  const order: number[] = [];
  const waiters = [1, 2, 3].map(async (number) => {
    using _slot = await semaphore.acquire({ signal: never });
    order.push(number);
  });
  held[Symbol.dispose]();
  await Promise.all(waiters);
  assert.deepEqual(order, [1, 2, 3]);
});

test('a waiter that leaves is passed over', async () => {
  const semaphore = createSemaphore(1);
  const held = await semaphore.acquire({ signal: never });
  const leaver = new AbortController();
  const left = semaphore.acquire({ signal: leaver.signal });
  const next = semaphore.acquire({ signal: never });
  leaver.abort(new Error('left'));
  await assert.rejects(left, /left/);
  held[Symbol.dispose]();
  (await next)[Symbol.dispose]();
});

test('giving a slot back twice makes no second slot', async () => {
  const semaphore = createSemaphore(1);
  const held = await semaphore.acquire({ signal: never });
  held[Symbol.dispose]();
  held[Symbol.dispose]();
  let isSecondServed = false;
  const first = await semaphore.acquire({ signal: never });
  const second = semaphore.acquire({ signal: never }).then((slot) => {
    isSecondServed = true;
    return slot;
  });
  await Promise.resolve();
  assert.equal(isSecondServed, false);
  first[Symbol.dispose]();
  (await second)[Symbol.dispose]();
});

test('however holders and leavers interleave, never more hold than there are slots and nobody is forgotten', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.integer({ min: 1, max: 3 }),
      fc.array(fc.boolean(), { maxLength: 12 }),
      run,
    ),
    { numRuns: 200 },
  );
  async function run(scheduler: fc.Scheduler, slots: number, leaves: boolean[]): Promise<void> {
    const semaphore = createSemaphore(slots);
    let holding = 0;
    const callers = leaves.map(async (isLeaving, index) => {
      const leaver = new AbortController();
      if (isLeaving) void scheduler.schedule(Promise.resolve(), `leave ${index}`).then(() => leaver.abort());
      try {
        using _slot = await semaphore.acquire({ signal: leaver.signal });
        holding += 1;
        assert.ok(holding <= slots);
        await scheduler.schedule(Promise.resolve(), `hold ${index}`);
        holding -= 1;
      } catch (error) {
        assert.ok(isLeaving, String(error));
      }
    });
    await scheduler.waitFor(Promise.all(callers));
    assert.equal(holding, 0);
  }
});
