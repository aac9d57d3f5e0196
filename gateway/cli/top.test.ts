import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fakeGateway, run } from './testing/terminal.ts';

const digest = `sha256:${'ab'.repeat(32)}`;
const machine = (id: string, inFlight: number) => ({
  ...{ id, node: 'abcd', template: 'hello', version: 'v2', digest, state: 'serving', pid: 1, invocations: 3 },
  ...{ startedAt: 1_000_000_000_000 - 125_000, inFlight, privateBytes: 3_250_586 },
});
const pool = {
  ...{ node: 'abcd', template: 'hello', version: 'v2', digest, isDraining: false },
  target: { ready: 2, blank: 1, max: 8 },
  ...{ blank: 1, restoring: 0, ready: 2, serving: 1, waiting: 4, failures: 0, lastFailure: null },
  starts: { ready: 1, restored: 2, spawned: 3, reused: 4 },
  sizing: { ready: 3, because: '3 ready: demand of 2.00/s', refillMs: 400 },
  ...{ hitRate: 0.5, refusals: { queue_full: 7 }, discards: {}, serviceMs: 12.4 },
};
const node = {
  ...{ id: 'abcd', isReady: true, isDraining: false, accelerator: 'tcg', acceleratorReason: 'no KVM here' },
  ...{ isTenantBoundary: false, machines: 3, maxMachines: 64, versions: 2 },
  startedAt: 1_000_000_000_000 - 7_200_000,
  disk: { usedBytes: 3 * 1024 ** 3, freeBytes: 1024 ** 2 },
};
const routes = {
  'GET /v1/nodes': { items: [node] },
  'GET /v1/pools': { items: [pool] },
  'GET /v1/machines': { items: [machine('abcd0000000000000001', 0), machine('abcd0000000000000002', 1)] },
};

test('top --once shows nodes, pools with the reason of their size, and the busiest machine first', async (context) => {
  const { env } = await fakeGateway(context, routes);
  const { code, stdout } = await run(context, ['top', '--once', '--machines', '1'], { env });
  assert.equal(code, 0);
  assert.match(stdout, /abcd +ready +2h +3\/64 +2 +3\.0 GiB +1\.0 MiB +tcg/);
  assert.match(stdout, /hello@v2 +2\/3 +1\/1 +1\/8 +4 +- +- +50\.0% +12ms +3 ready: demand of 2\.00\/s/);
  assert.match(stdout, /abcd0000000000000002/);
  for (const absent of ['abcd0000000000000001', '\x1b', 'no KVM here'])
    assert.ok(!stdout.includes(absent), absent);
});

test('on a terminal it draws on a screen of its own, and gives the old one back on Ctrl-C', async (context) => {
  const { env } = await fakeGateway(context, routes);
  const stop = new AbortController();
  const { code, stdout } = await run(context, ['top'], {
    env,
    isTTY: true,
    interrupted: stop.signal,
    onStdout: (soFar) => soFar.includes('hello@v2') && stop.abort(),
  });
  assert.equal(code, 0);
  assert.ok(stdout.startsWith('\x1b[?1049h') && stdout.endsWith('\x1b[?25h\x1b[?1049l'));
});

test('top --json prints what was asked and the rates, for programs', async (context) => {
  const { env } = await fakeGateway(context, routes);
  const { stdout } = await run(context, ['top', '--once', '--json'], { env });
  const view = JSON.parse(stdout);
  assert.deepEqual([view.pools[0].callsPerSecond, view.nodes[0].id, view.machines.length], [null, 'abcd', 2]);
});
