import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { SandboxEvent } from '../../sdk/index.ts';
import { readEvents } from './event-stream.ts';
import { openSandboxStore } from './store.ts';
import { idOf as id, sandboxRecord as sandbox, snapshotRecord } from './testing/records.ts';

const snapshot = (letter: string, name: string | null) => snapshotRecord(letter, { name });
const event = (letter: string) => ({ sandbox: id(letter), type: 'created' as const, data: {} });

describe('the store of sandboxes', () => {
  test('keeps records and events over a reopening, with their numbers going on', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'snapgate-store-'));
    const path = join(directory, 'sandboxes.db');
    {
      using store = openSandboxStore(path, () => 7);
      store.apply({ sandboxes: [sandbox('a')], snapshots: [snapshot('s', 'first')], events: [event('a')] });
    }
    using store = openSandboxStore(path, () => 8);
    assert.deepEqual(store.sandbox(id('a')), sandbox('a'));
    assert.deepEqual(store.snapshotByName('first'), snapshot('s', 'first'));
    store.apply({ events: [event('a')] });
    assert.deepEqual(
      store.events(0).map(({ sequence, at }) => [sequence, at]),
      [
        [1, 7],
        [2, 8],
      ],
    );
    await rm(directory, { recursive: true });
  });

  test('a change holds as a whole or not at all, and a name is given once', () => {
    using store = openSandboxStore(':memory:', () => 0);
    store.apply({ snapshots: [snapshot('s', 'first')] });
    assert.throws(
      () =>
        store.apply({ sandboxes: [sandbox('a')], snapshots: [snapshot('t', 'first')], events: [event('a')] }),
      { code: 'conflict' },
    );
    assert.deepEqual([store.sandboxes(), store.events(0)], [[], []]);
    store.apply({ removedSnapshots: [id('s')], snapshots: [snapshot('t', 'first')] });
    assert.equal(store.snapshotByName('first')?.id, id('t'));
  });

  test('ended sandboxes are forgotten after their time, others never', () => {
    using store = openSandboxStore(':memory:', () => 0);
    const termination = { reason: 'killed' as const, infra: false, evidence: '', at: 100 };
    store.apply({ sandboxes: [sandbox('a', { state: 'ended', termination }), sandbox('b')] });
    store.forget(100);
    assert.equal(store.sandboxes().length, 2);
    store.forget(101);
    assert.deepEqual(
      store.sandboxes().map((one) => one.id),
      [id('b')],
    );
  });

  test('a reader gets the history from its number on, then what comes, of its sandbox only, until it leaves', async () => {
    using store = openSandboxStore(':memory:', () => 0);
    for (const letter of ['a', 'b', 'a']) store.apply({ events: [event(letter)] });
    const leaving = new AbortController();
    const seen: SandboxEvent[] = [];
    const reading = (async () => {
      const options = { since: 1, follow: true, sandbox: id('a') as never, signal: leaving.signal };
      for await (const one of readEvents(store, options)) {
        seen.push(one);
        if (seen.length === 2) leaving.abort();
      }
    })();
    await new Promise(setImmediate);
    for (const letter of ['b', 'a']) store.apply({ events: [event(letter)] });
    await reading;
    assert.deepEqual(
      seen.map(({ sequence }) => sequence),
      [3, 5],
    );
  });
});
