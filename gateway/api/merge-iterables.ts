/**
 * Values of several sources in the order in which they come. Ends when all have ended, fails when one fails; ending the
 * iteration ends all of them. Holds at most one value of each.
 */
export async function* mergeIterables<T>(sources: readonly AsyncIterable<T>[]): AsyncGenerator<T, void> {
  const iterators = sources.map((source) => source[Symbol.asyncIterator]());
  const next = async (index: number) => ({ index, result: await iterators[index]!.next() });
  const pending = new Map(iterators.map((_, index) => [index, next(index)]));
  try {
    while (pending.size > 0) {
      const { index, result } = await Promise.race(pending.values());
      if (result.done) {
        pending.delete(index);
        continue;
      }
      pending.set(index, next(index));
      yield result.value;
    }
  } finally {
    for (const promise of pending.values()) promise.catch(() => {});
    // A source in the middle of a wait only ends through its own signal, so nobody waits for it here.
    for (const iterator of iterators) iterator.return?.()?.catch(() => {});
  }
}
