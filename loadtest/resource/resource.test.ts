import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { MachineInfo, NodeInfo, PoolInfo } from '../../sdk/index.ts';
import { checkLeaks, type Holdings, takeHoldings } from './leaks.ts';
import { createLocalHost } from './local-host.ts';
import type { NodeApi, NodeView } from './node-view.ts';
import { isLoopback, startSampler } from './sampler.ts';

const machine = (privateBytes: number | null): MachineInfo => ({
  id: 'a'.repeat(20),
  node: 'aaaa',
  template: 'hello',
  version: 'v1',
  digest: `sha256:${'0'.repeat(64)}`,
  state: 'ready',
  startedAt: 0,
  invocations: 0,
  inFlight: 0,
  pid: process.pid,
  privateBytes,
});
const pool = (over: Partial<PoolInfo> = {}): PoolInfo => ({
  node: 'aaaa',
  template: 'hello',
  version: 'v1',
  digest: `sha256:${'0'.repeat(64)}`,
  isDraining: false,
  target: { ready: 1, blank: 1, max: 8 },
  blank: 1,
  restoring: 0,
  ready: 2,
  serving: 0,
  waiting: 0,
  starts: { ready: 0, restored: 0, spawned: 0, reused: 0 },
  failures: 0,
  lastFailure: null,
  ...over,
});
const node = (usedBytes: number | null): NodeInfo => ({
  ...{ id: 'aaaa', isReady: true, isDraining: false, isTenantBoundary: false, versions: 1, startedAt: 0 },
  ...{ accelerator: 'tcg', acceleratorReason: '', machines: 1, maxMachines: 2 },
  disk: usedBytes === null ? null : { usedBytes, freeBytes: 1 },
});
const api = (...views: NodeView[]): NodeApi => ({
  view: async () => (views.length > 1 ? views.shift()! : views[0]!),
});

describe('the sampler', () => {
  test('adds up machines and pools, leaves out what the server does not say, and stops when disposed', async () => {
    const view: NodeView = {
      machines: [machine(100), machine(null), machine(50)],
      pools: [pool()],
      nodes: [node(700), node(null), node(7)],
    };
    const sampler = startSampler({ api: api(view), local: null, now: () => 7 }, { everyMs: 1 });
    while (sampler.samples().length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
    await sampler[Symbol.asyncDispose]();
    const taken = sampler.samples().length;
    assert.deepEqual(sampler.samples()[0], {
      atMs: 7,
      values: {
        machines: 3,
        memory_private_bytes: 150,
        machines_ready: 2,
        machines_blank: 1,
        machines_leased: 0,
        disk_bytes: 707,
      },
    });
    await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(sampler.samples().length, taken);
  });

  test('keeps a few hundred samples however long it runs', async () => {
    const sampler = startSampler(
      { api: api({ machines: null, pools: null, nodes: null }), local: null, now: () => 0 },
      { everyMs: 0 },
    );
    let most = 0;
    for (let turn = 0; turn < 600; turn++) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      most = Math.max(most, sampler.samples().length);
    }
    await sampler[Symbol.asyncDispose]();
    assert.ok(most > 0 && most <= 360);
  });
});

test('figures of this host are read for this process, and a process that ended is left out', async () => {
  let atMs = 0;
  const local = createLocalHost({
    clock: () => {
      atMs += 1_000;
      return atMs;
    },
  });
  const first = await local.sample([process.pid]);
  assert.ok((first.memory_pss_bytes ?? 0) > 1024 ** 2);
  assert.ok((first.page_cache_bytes ?? 0) > 0);
  assert.equal(first.cpu_cores, undefined, 'CPU needs two samples');
  const second = await local.sample([2 ** 22 + 1]);
  assert.equal(second.memory_pss_bytes, undefined);
  assert.ok((second.cpu_cores ?? -1) >= 0);
});

test('only loopback counts as this host', () => {
  for (const url of ['http://127.0.0.1:7070', 'http://localhost:1', 'http://[::1]:1', 'http://127.3.2.1:1'])
    assert.equal(isLoopback(url), true, url);
  for (const url of ['http://10.0.0.1:1', 'http://example.com', 'http://127.example.com'])
    assert.equal(isLoopback(url), false, url);
});

describe('the leak check', () => {
  const before: Holdings = { machines: 2, serving: 0, waiting: 0, floor: 2 };
  const holding = (machines: number, over: Partial<PoolInfo> = {}): NodeView => ({
    machines: Array.from({ length: machines }, () => machine(null)),
    pools: [pool(over)],
    nodes: null,
  });
  const slept: number[] = [];
  const sleep = async (ms: number) => void slept.push(ms);

  test('waits until what the run made the server grow is shed', async () => {
    const report = await checkLeaks({ api: api(holding(6), holding(4), holding(2)), sleep }, before, {
      settleMs: 10_000,
    });
    assert.deepEqual(report.leaked, []);
    assert.equal(report.waitedMs, 1_000);
  });

  test('names machines, work and queues that stay', async () => {
    const report = await checkLeaks({ api: api(holding(5, { serving: 1, waiting: 2 })), sleep }, before, {
      settleMs: 1_000,
    });
    assert.deepEqual(report.leaked, [
      '5 machines, expected at most 2',
      '1 machines still at work, 0 before',
      '2 callers still queued, 0 before',
    ]);
  });

  test('fails when the server does not say what it holds', async () => {
    const silent = api({ machines: null, pools: null, nodes: null });
    assert.equal(await takeHoldings(silent), null);
    const report = await checkLeaks({ api: silent, sleep }, null, { settleMs: 0 });
    assert.equal(report.leaked.length, 1);
  });
});
