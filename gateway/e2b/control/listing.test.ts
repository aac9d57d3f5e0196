import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError, type SandboxInfo } from '../../../sdk/index.ts';
import { type ListQuery, listQuerySchema, pageOf, parseMetadata } from './listing.ts';

const sandbox = (id: string, createdAt: number, state: SandboxInfo['state'] = 'running') =>
  ({ id, createdAt, startedAt: createdAt, state }) as SandboxInfo;
const query = (changes: Record<string, unknown> = {}): ListQuery => listQuerySchema.parse(changes);
const ids = (items: readonly SandboxInfo[]) => items.map(({ id }) => id).join('');

test('pages follow each other without gap and without repetition, in both orders, whoever comes or goes', () => {
  const all = ['a', 'b', 'c', 'd', 'e'].map((id, at) => sandbox(id, 1000 + Math.floor(at / 2)));
  for (const [order, expected] of [
    ['desc', 'edcba'],
    ['asc', 'abcde'],
  ] as const) {
    let [seen, nextToken]: [string, string | undefined] = ['', undefined];
    do {
      // One that belongs before all others appears behind the reader's back.
      const now = seen === '' ? all : [...all, sandbox('z', order === 'desc' ? 9999 : 0)];
      const wish: ListQuery = query({ order, limit: 2, ...(nextToken === undefined ? {} : { nextToken }) });
      const page = pageOf(now, wish);
      seen += ids(page.items);
      nextToken = page.nextToken ?? undefined;
    } while (nextToken !== undefined);
    assert.equal(seen, expected);
  }
});

test('states on their way count as what clients know, and only those that fit are counted', () => {
  const all = [
    sandbox('a', 1, 'pausing'),
    sandbox('b', 2, 'paused'),
    sandbox('c', 3, 'resuming'),
    sandbox('d', 4),
  ];
  assert.equal(ids(pageOf(all, query({ state: 'running' })).items), 'da');
  assert.equal(ids(pageOf(all, query({ state: 'paused' })).items), 'cb');
  assert.equal(pageOf(all, query({ state: 'running,paused' })).running, 2);
  assert.equal(ids(pageOf(all, query({ startedAfter: new Date(3).toISOString() })).items), 'dc');
});

test('a token of another listing, of another order or of nobody is refused', () => {
  const all = [sandbox('a', 1), sandbox('b', 2)];
  const { nextToken } = pageOf(all, query({ limit: 1 }));
  assert.ok(nextToken);
  for (const bad of [{ nextToken, order: 'asc' }, { nextToken: 'x' }, { nextToken: '' }])
    assert.throws(() => pageOf(all, query(bad)), GatewayError);
});

test('metadata is decoded as often as clients encode it', () => {
  const once = new URLSearchParams({
    [encodeURIComponent('a b')]: encodeURIComponent('x&y=ü'),
    k: '1',
  }).toString();
  assert.deepEqual(parseMetadata(once), { 'a b': 'x&y=ü', k: '1' });
  assert.deepEqual(parseMetadata('k=100%25'), { k: '100%' });
  for (const bad of ['', '=x']) assert.throws(() => parseMetadata(bad), GatewayError);
});
