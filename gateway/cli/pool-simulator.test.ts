import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SimulatedArrival, SimulationRequest } from '../../loadtest/index.ts';
import { poolSimulator } from './pool-simulator.ts';

const mib = 2 ** 20;
const request: SimulationRequest = {
  nodes: 1,
  seed: 1,
  templatePeaks: [8],
  node: {
    ...{ memoryBytes: 1024 * mib, maxMachines: 20, machineBytes: 40 * mib, blankBytes: 20 * mib },
    ...{ restoreMs: 30, spawnMs: 60, primeMs: 300, wakeMs: 2 },
    ...{ ready: 1, blank: 1, maxPerTemplate: 4, idleMs: 60_000 },
  },
};
/** Eight at a time, for a minute. */
async function* arrivals(): AsyncGenerator<SimulatedArrival> {
  for (let index = 0; index < 480; index++) yield { atMs: index * 125, template: 0, busyMs: 950 };
}
const simulate = (changes: Partial<SimulationRequest> = {}) =>
  poolSimulator.simulate(arrivals(), { ...request, ...changes });

test('a template is spread over as many nodes as its peak needs, and then nobody waits long', async () => {
  const one = await simulate();
  const two = await simulate({ nodes: 2 });
  assert.equal(one.invocations, 480);
  assert.ok(one.peakMachines <= 4, `${one.peakMachines} machines`);
  assert.ok(one.addedWaitP99Ms > 1_000, `${one.addedWaitP99Ms} ms with half the machines`);
  assert.equal(two.refused, 0);
  assert.ok(two.addedWaitP99Ms < 200, `${two.addedWaitP99Ms} ms with enough`);
  assert.ok(two.hitRate > 0.9);
});

test('memory bounds the machines of a node as their number does', async () => {
  const { peakMachines } = await simulate({ node: { ...request.node, memoryBytes: 100 * mib } });
  assert.equal(peakMachines, 2);
});
