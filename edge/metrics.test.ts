import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PoolTransition } from '../pool/index.ts';
import type { TemplateName, VersionDigest } from '../sdk/index.ts';
import { createEdgeMetrics } from './metrics.ts';

const digest = `sha256:${'0'.repeat(64)}` as VersionDigest;
const metrics = () =>
  createEdgeMetrics({
    stats: () =>
      ({ machines: 0, maxMachines: 4, restores: { running: 0, waiting: 0, limit: 2 }, pools: [] }) as never,
    templateOf: () => 'hello' as TemplateName,
    network: () => ({ ready: 0, used: 0, preparing: 0, failures: 0, refusals: 0 }) as never,
  });
const gaveUp = (from: PoolTransition['from'], reason: string): PoolTransition => ({
  ...{ digest, machineId: null, from, to: 'disposing', event: 'discard', reason },
});

test('machines given up are counted by reason, and those made in vain apart', async () => {
  const { observer, text } = metrics();
  observer.transition(gaveUp('serving', 'idle'));
  observer.transition(gaveUp('ready', 'surplus'));
  observer.transition(gaveUp('blank', 'shed'));
  observer.transition(gaveUp('ready', 'drained'));
  const lines = (await text()).split('\n');
  const of = (name: string) => lines.filter((line) => line.startsWith(name)).sort();
  assert.deepEqual(of('snapgate_pool_discards_total{'), [
    'snapgate_pool_discards_total{template="hello",reason="drained"} 1',
    'snapgate_pool_discards_total{template="hello",reason="idle"} 1',
    'snapgate_pool_discards_total{template="hello",reason="shed"} 1',
    'snapgate_pool_discards_total{template="hello",reason="surplus"} 1',
  ]);
  assert.deepEqual(of('snapgate_pool_wasted_machines_total{'), [
    'snapgate_pool_wasted_machines_total{template="hello",reason="surplus"} 1',
  ]);
});

test('a reason that a holder invents does not become a label', async () => {
  const { observer, text } = metrics();
  observer.transition(gaveUp('serving', `request ${'x'.repeat(50)}`));
  assert.match(await text(), /snapgate_pool_discards_total\{template="hello",reason="other"\} 1/);
});
