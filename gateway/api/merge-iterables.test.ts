import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mergeIterables } from './merge-iterables.ts';

/** A source that yields what it is told, when it is told. */
function controlled() {
  const values: PromiseWithResolvers<IteratorResult<string>>[] = [];
  const state = { isReturned: false, asked: 0 };
  const at = (index: number) => {
    values[index] ??= Promise.withResolvers();
    return values[index];
  };
  const source: AsyncIterable<string> = {
    [Symbol.asyncIterator]: () => ({
      next: () => at(state.asked++).promise,
      async return() {
        state.isReturned = true;
        return { done: true, value: undefined };
      },
    }),
  };
  return { source, state, at };
}

test('values come in the order in which they are made, whoever makes them', async () => {
  const [a, b] = [controlled(), controlled()];
  const merged = mergeIterables([a.source, b.source]);
  b.at(0).resolve({ done: false, value: 'b1' });
  assert.equal((await merged.next()).value, 'b1');
  a.at(0).resolve({ done: false, value: 'a1' });
  assert.equal((await merged.next()).value, 'a1');
  b.at(1).resolve({ done: true, value: undefined });
  a.at(1).resolve({ done: false, value: 'a2' });
  assert.equal((await merged.next()).value, 'a2');
  a.at(2).resolve({ done: true, value: undefined });
  assert.equal((await merged.next()).done, true);
});

test('at most one value of each source is held', async () => {
  const [a, b] = [controlled(), controlled()];
  const merged = mergeIterables([a.source, b.source]);
  for (let index = 0; index < 5; index++) a.at(index).resolve({ done: false, value: String(index) });
  await merged.next();
  assert.deepEqual([a.state.asked, b.state.asked], [2, 1]);
});

test('the failure of one fails all and ends the others, and so does a reader that stops', async () => {
  const [a, b] = [controlled(), controlled()];
  const failing = mergeIterables([a.source, b.source]);
  a.at(0).reject(new Error('gone'));
  await assert.rejects(failing.next(), /gone/);
  assert.ok(b.state.isReturned);

  const c = controlled();
  c.at(0).resolve({ done: false, value: 'c' });
  for await (const value of mergeIterables([c.source])) {
    assert.equal(value, 'c');
    break;
  }
  assert.ok(c.state.isReturned);
});
