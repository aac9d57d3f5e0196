import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NetworkRefusal } from '../../sdk/index.ts';
import { RefusalLog } from './refusal-log.ts';

const refusal = (changes: Partial<NetworkRefusal> = {}): NetworkRefusal => ({
  at: 1000,
  count: 1,
  machine: 'm1',
  sandbox: null,
  ruleSet: 'template x',
  kind: 'connection',
  name: null,
  address: '192.0.2.1',
  protocol: 'tcp',
  port: 80,
  rule: null,
  reason: 'no rule allows it',
  ...changes,
});

test('repetitions are counted while they are recent, and told once', () => {
  const log = new RefusalLog();
  const told: NetworkRefusal[] = [];
  const stop = log.watch((one) => told.push(one));
  log.add('d1', refusal());
  log.add('d1', refusal({ at: 3000, count: 4 }));
  log.add('d1', refusal({ at: 4000, port: 81 }));
  log.add('d1', refusal({ at: 60_000 }));
  stop();
  log.add('d1', refusal({ at: 120_000 }));
  assert.deepEqual(
    log.read({}).map(({ at, count, port }) => [at, count, port]),
    [
      [3000, 5, 80],
      [4000, 1, 81],
      [60_000, 1, 80],
      [120_000, 1, 80],
    ],
  );
  assert.deepEqual(
    told.map(({ at }) => at),
    [1000, 4000, 60_000],
  );
  assert.equal(log.total, 8);
});

test('readers get what they ask for: machine, sandbox, version, and the last of each', () => {
  const log = new RefusalLog();
  log.add('d1', refusal({ port: 1 }));
  log.add('d1', refusal({ port: 2 }));
  log.add('d2', refusal({ machine: 'm2', sandbox: 's2', port: 3 }));
  const ports = (...[filter, tail]: Parameters<RefusalLog['read']>) =>
    log.read(filter, tail).map(({ port }) => port);
  assert.deepEqual(ports({ machine: 'm1' }), [1, 2]);
  assert.deepEqual(ports({ sandbox: 's2' }), [3]);
  assert.deepEqual(ports({ digests: ['d2'] }), [3]);
  assert.deepEqual(ports({}, 1), [2, 3]);
  assert.deepEqual(ports({}, 0), []);
});

test('a noisy machine pushes out its own, and many machines those heard of longest ago', () => {
  const log = new RefusalLog();
  log.add('d1', refusal({ machine: 'quiet' }));
  for (let port = 1; port <= 1000; port += 1) log.add('d1', refusal({ machine: 'noisy', port }));
  assert.equal(log.read({ machine: 'quiet' }).length, 1);
  assert.equal(log.read({ machine: 'noisy' }).at(-1)?.port, 1000);
  assert.equal(log.read({ machine: 'noisy' }).length, 200);
  for (let n = 0; n < 300; n += 1) log.add('d1', refusal({ machine: `m${n}` }));
  assert.equal(log.read({ machine: 'quiet' }).length, 0);
  assert.equal(log.read({ machine: 'm299' }).length, 1);
});
