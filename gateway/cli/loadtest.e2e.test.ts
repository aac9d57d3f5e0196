/** Short versions of load-test scenarios against one real server with real guests. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { loadScenario, type Result, type RunPlanInput, run, runPlanSchema } from '../../loadtest/index.ts';
import { packTemplate, parseDefinition } from '../../templates/index.ts';
import { type DrillNode, leaksOf, startNode } from '../testing/drill-node.ts';

const folder = join(import.meta.dirname, '../../loadtest/probe-template');
const template = 'loadtest-probe';
let node: DrillNode;

before(async () => {
  node = await startNode();
  const definition = parseDefinition(JSON.parse(await readFile(join(folder, 'template.json'), 'utf8')));
  for await (const event of node.client.publish(template, await packTemplate(folder, definition)))
    if (event.type === 'error') throw new Error(JSON.stringify(event.problem));
});
after(async () => {
  await node.stop();
  const left = await leaksOf(node.dataDirectory);
  await node[Symbol.asyncDispose]();
  assert.deepEqual(left, []);
});

async function measure(
  scenario: string,
  scenarioOptions: Record<string, unknown>,
  over: Partial<RunPlanInput> = {},
): Promise<Result> {
  const loaded = await loadScenario(scenario);
  const profile = loaded.profile(loaded.options.parse(scenarioOptions));
  const plan = runPlanSchema.parse({
    ...{ scenario, scenarioOptions, url: node.url, apiKeys: [node.apiKey], templates: [template] },
    loop: { kind: 'open', profile },
    sampleEveryMs: 500,
    timeoutMs: 60_000,
    // Generator and server share this process, so it is not the generator's punctuality that is tested.
    limits: { lagP99Ms: 60_000, droppedRatio: 0.5 },
    ...over,
  });
  return run(plan, loaded);
}

const sessions: Readonly<Record<string, Record<string, unknown>>> = {
  tti: { mode: 'sequential', sandboxes: 2, gapMs: 2_000 },
  'sandbox-session': { commands: 2, files: 1, ratePerSecond: 1, durationMs: 1_000 },
  'fork-fanout': { children: 2, rounds: 1, everyMs: 1_000 },
  'agent-tree': { branches: 2, depth: 2, rounds: 1, everyMs: 1_000 },
  'pause-resume-churn': { rounds: 2, sessions: 1, everyMs: 1_000 },
};

for (const [name, options] of Object.entries(sessions)) {
  test(`${name} passes its gates and checks on real guests, and times every declared step`, async () => {
    const result = await measure(name, options);
    assert.deepEqual(result.verdict.reasons, [], JSON.stringify(result.errors));
    const { steps } = await loadScenario(name);
    const recorded = result.series.filter(({ metric }) => metric === 'step').map(({ labels }) => labels.name);
    assert.deepEqual(new Set(recorded), new Set(steps));
    const examined = new Map(result.checks.map((check) => [check.name, check.examined]));
    for (const check of ['random-bytes', 'guest-clock', 'fresh-clone', 'digest'] as const)
      assert.ok((examined.get(check) ?? 0) > 0, `${check} looked at nothing`);
    assert.deepEqual(await snapshots(), []);
  });
}

test('calls of a function pass every check of their answers, repeated ones among them', async () => {
  const profile = { kind: 'constant', ratePerSecond: 12, durationMs: 4_000 } as const;
  const loop = { kind: 'open', profile } as const;
  const result = await measure('invoke', {}, { loop, probe: true, idempotency: true });
  assert.deepEqual(result.verdict.reasons, [], JSON.stringify(result.errors));
  const examined = new Map(result.checks.map((check) => [check.name, check.examined]));
  for (const check of ['random-bytes', 'guest-clock', 'invocations', 'tenant', 'digest'] as const)
    assert.equal(examined.get(check), 48, check);
  assert.equal(examined.get('idempotency'), 3);
  const sampled = result.resources.at(-1)?.values ?? {};
  for (const gauge of [
    'machines',
    'memory_pss_bytes',
    'memory_private_bytes',
    'page_cache_bytes',
    'disk_bytes',
  ] as const)
    assert.ok((sampled[gauge] ?? 0) > 0, `${gauge} was not sampled`);
});

async function snapshots(): Promise<string[]> {
  const answer = await fetch(new URL('/v1/snapshots', node.url), {
    headers: { authorization: `Bearer ${node.apiKey}` },
  });
  const { items } = (await answer.json()) as { items: { id: string }[] };
  return items.map(({ id }) => id);
}
