import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { SnapshotRecord } from './record.ts';
import { dropSnapshot, retain, surplus } from './retention.ts';
import { openSandboxStore } from './store.ts';
import { sandboxRecord, snapshotRecord } from './testing/records.ts';

const ids = (snapshots: readonly { readonly id: string }[]) => snapshots.map(({ id }) => id[0]).join('');
const plenty = { snapshotsPerSandbox: 100, snapshotBytes: 1e9 };

/** Snapshots of sandbox `s`, taken one after the other, each the parent of the next. */
const line = (letters: string, changes: (letter: string) => Partial<SnapshotRecord> = () => ({})) =>
  [...letters].map((letter, index) =>
    snapshotRecord(letter, {
      createdAt: index,
      parent: index === 0 ? null : snapshotRecord(letters[index - 1] ?? '').id,
      ...changes(letter),
    }),
  );
const newestOf = (snapshots: readonly SnapshotRecord[]) => snapshots.at(-1) as SnapshotRecord;

describe('what is kept of snapshots', () => {
  test('the last ones of a sandbox are kept, pinned ones beside them, and those of other sandboxes', () => {
    const own = line('abcde', (letter) => ({ isPinned: letter === 'b' }));
    const other = snapshotRecord('x', { sandbox: sandboxRecord('o').id, createdAt: 0 });
    const limits = { ...plenty, snapshotsPerSandbox: 2 };
    assert.equal(ids(surplus([...own, other], newestOf(own), limits)), 'ac');
  });

  test('what holds a paused sandbox is neither counted nor dropped', () => {
    const own = line('abc', (letter) => ({ kind: letter === 'a' ? 'pause' : 'user' }));
    const limits = { snapshotsPerSandbox: 2, snapshotBytes: 20 };
    assert.deepEqual(surplus(own, newestOf(own), limits), []);
  });

  test('beyond the bytes of the node the oldest go, whoever they belong to, until it is enough', () => {
    const own = line('abc');
    const other = snapshotRecord('x', { sandbox: sandboxRecord('o').id, createdAt: 0, bytes: 10 });
    assert.equal(ids(surplus([...own, other], newestOf(own), { ...plenty, snapshotBytes: 25 })), 'ax');
    const pinned = own.map((one) => ({ ...one, isPinned: true }));
    assert.deepEqual(surplus(pinned, newestOf(pinned), { ...plenty, snapshotBytes: 0 }), []);
  });

  test('the newest stays even when nothing may, and what is kept is never older than what goes', () => {
    const records = fc.uniqueArray(
      fc.record({
        letter: fc.constantFrom(...'abcdefghijkl'),
        createdAt: fc.nat(),
        isPinned: fc.boolean(),
        bytes: fc.nat(100),
      }),
      { selector: ({ createdAt }) => createdAt, minLength: 1 },
    );
    fc.assert(
      fc.property(records, fc.nat(5), fc.nat(300), (rows, snapshotsPerSandbox, snapshotBytes) => {
        const unique = [...new Map(rows.map((row) => [row.letter, row])).values()];
        const all = unique
          .map(({ letter, ...row }) => snapshotRecord(letter, row))
          .sort((a, b) => a.createdAt - b.createdAt);
        const newest = newestOf(all);
        const gone = surplus(all, newest, { snapshotsPerSandbox, snapshotBytes });
        assert.ok(gone.every(({ isPinned, id }) => !isPinned && id !== newest.id));
        const kept = all.filter((one) => !gone.includes(one));
        const loose = kept.filter(({ isPinned, id }) => !isPinned && id !== newest.id);
        const bytes = kept.reduce((sum, one) => sum + one.bytes, 0);
        // Whatever could still go only stays because both limits hold.
        if (loose.length > 0)
          assert.ok(
            bytes <= snapshotBytes &&
              loose.length + (newest.isPinned ? 0 : 1) <= Math.max(1, snapshotsPerSandbox),
          );
        const youngest = Math.max(-1, ...gone.map(({ createdAt }) => createdAt));
        assert.ok(loose.every(({ createdAt }) => createdAt > youngest));
      }),
    );
  });
});

describe('dropping a snapshot', () => {
  const open = (snapshots: readonly SnapshotRecord[]) => {
    const store = openSandboxStore(':memory:', () => 0);
    store.apply({ snapshots });
    const removed: string[] = [];
    const rebased: (string | null)[][] = [];
    let collected = 0;
    return {
      ...{ store, removed, rebased, files: { remove: async (id: string) => void removed.push(id) } },
      rebase: (...change: [string, string, string | null]) => void rebased.push(change),
      collect: async () => void collected++,
      collections: () => collected,
      parents: () =>
        Object.fromEntries(store.snapshots().map(({ id, parent }) => [id[0], parent?.[0] ?? null])),
      [Symbol.dispose]: () => store[Symbol.dispose](),
    };
  };

  test('moves its children in the tree up to its parent, and sandboxes that stand on it', async () => {
    const all = line('abc');
    using deps = open([...all, snapshotRecord('d', { parent: all[1]?.id ?? null })]);
    const standing = sandboxRecord('s', { basis: all[1]?.id ?? null });
    deps.store.apply({ sandboxes: [standing, sandboxRecord('o', { basis: all[2]?.id ?? null })] });
    await dropSnapshot(deps, all[1] as SnapshotRecord);
    assert.deepEqual(deps.parents(), { a: null, c: 'a', d: 'a' });
    assert.deepEqual(deps.rebased, [[standing.id, all[1]?.id, all[0]?.id]]);
    assert.deepEqual(deps.removed, [all[1]?.id]);
    assert.equal(deps.collections(), 1);
  });

  test('several in a row leave no child of one that is gone', async () => {
    const all = line('abcdef', (letter) => ({ isPinned: letter === 'c' }));
    using deps = open(all);
    await retain({ ...deps, options: { ...plenty, snapshotsPerSandbox: 2 } }, newestOf(all));
    assert.deepEqual(deps.parents(), { c: null, e: 'c', f: 'e' });
    assert.equal(ids(deps.removed.map((id) => ({ id }))), 'abd');
  });
});
