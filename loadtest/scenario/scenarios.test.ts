/** Every built-in scenario against stubs that behave, and against stubs that break what it proves. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import type { Result } from '../record/result.ts';
import { type RunPlanInput, runPlanSchema } from '../run/plan.ts';
import { run } from '../run/runner.ts';
import { profileSchema } from '../schedule/profile.ts';
import { createStubSandboxes, type SandboxFaults } from '../testing/stub-sandboxes.ts';
import { answerInvocation, startStub } from '../testing/stub-server.ts';
import { builtInScenarios, loadScenario } from './registry.ts';

async function runScenario(
  name: string,
  url: string,
  scenarioOptions: Record<string, unknown>,
  over: Partial<RunPlanInput> = {},
): Promise<Result> {
  const scenario = await loadScenario(name);
  const profile = profileSchema.parse(scenario.profile(scenario.options.parse(scenarioOptions)));
  const plan = runPlanSchema.parse({
    scenario: name,
    scenarioOptions,
    url,
    templates: ['hello'],
    loop: { kind: 'open', profile },
    sampleEveryMs: 0,
    limits: { lagP99Ms: 10_000, droppedRatio: 0.9 },
    ...over,
  });
  return run(plan, scenario);
}

/** A sandbox server that behaves, but for the given faults. */
async function withSandboxes(
  faults: SandboxFaults,
  use: (url: string) => Promise<Result>,
): Promise<{ result: Result; alive: number }> {
  const sandboxes = createStubSandboxes(faults);
  await using server = await startStub(
    () => undefined,
    (request, response) => {
      if (!/^\/v1\/(sandboxes|snapshots)/.test(request.url ?? '')) return false;
      void sandboxes.handle(request, response);
      return true;
    },
  );
  const result = await use(server.url);
  return { result, alive: sandboxes.alive };
}

const quick: Readonly<Record<string, Record<string, unknown>>> = {
  tti: { sandboxes: 5, gapMs: 50 },
  'sandbox-session': { ratePerSecond: 5, durationMs: 1_000, fileBytes: 1_000 },
  'fork-fanout': { everyMs: 200, rounds: 3 },
  'agent-tree': { everyMs: 300, rounds: 2 },
  'pause-resume-churn': { everyMs: 200, sessions: 2, rounds: 3 },
};

describe('session scenarios', () => {
  for (const [name, options] of Object.entries(quick)) {
    test(`${name} passes against sandboxes that behave, times every declared step and leaves none`, async () => {
      const { result, alive } = await withSandboxes({}, (url) => runScenario(name, url, options));
      assert.equal(result.verdict.isPassed, true, result.verdict.reasons.join('; '));
      const scenario = await loadScenario(name);
      const recorded = new Set(
        result.series.filter((one) => one.metric === 'step').map((one) => one.labels.name),
      );
      assert.deepEqual(recorded, new Set(scenario.steps));
      assert.ok(result.checks.some((check) => check.name === 'random-bytes' && check.examined > 0));
      assert.equal(alive, 0);
    });
  }

  const faults: [string, string, SandboxFaults, RegExp][] = [
    [
      'fork-fanout',
      'children that share random bytes',
      { sharesRandomBytes: true },
      /random bytes .* given before/,
    ],
    [
      'fork-fanout',
      'children without the state of their source',
      { losesState: true },
      /requests\{outcome=failed\}/,
    ],
    ['tti', 'a clock that stands still', { clockBehindMs: 60_000 }, /clock is \d+ ms off/],
    ['fork-fanout', 'children with the state of another session', { mixesStates: true }, /holds sgcanary-/],
    [
      'sandbox-session',
      'a command that runs twice',
      { runsTwice: true },
      /violations of “each answer belongs/,
    ],
    ['agent-tree', 'a rewind that changes nothing', { ignoresRewind: true }, /requests\{outcome=failed\}/],
  ];
  for (const [name, what, fault, reason] of faults) {
    test(`${name} fails for ${what}, and still leaves no sandbox`, async () => {
      const { result, alive } = await withSandboxes(fault, (url) => runScenario(name, url, quick[name]!));
      assert.equal(result.verdict.isPassed, false);
      assert.match(result.verdict.reasons.join('; '), reason);
      assert.equal(alive, 0);
    });
  }
});

describe('request scenarios', () => {
  test('burst sends whole bursts and passes when all are answered', async () => {
    await using server = await startStub((_request, response) => answerInvocation(response));
    const result = await runScenario('burst', server.url, { size: 8, everyMs: 300, bursts: 3 });
    assert.equal(result.outcomes.ok, 24);
    assert.equal(result.verdict.isPassed, true, result.verdict.reasons.join('; '));
  });

  test('cold-vs-warm keeps start types apart', async () => {
    let calls = 0;
    await using server = await startStub((_request, response) => {
      const call = calls++;
      const start = ['ready', 'restored', 'spawned'][call % 3]!;
      answerInvocation(response, {
        headers: { 'x-snapgate-start': start, 'x-snapgate-machine': `m${String(call).padStart(19, '0')}` },
      });
    });
    const result = await runScenario('cold-vs-warm', server.url, { size: 6, quietMs: 200, rounds: 2 });
    const counts = result.series
      .filter((one) => one.metric === 'latency')
      .map((one) => [one.labels.start, one.summary.count]);
    assert.deepEqual(
      new Map(counts as [string, number][]),
      new Map([
        ['ready', 4],
        ['restored', 4],
        ['spawned', 4],
      ]),
    );
  });

  test('overload passes when the flood is refused properly, and fails when refusals are bare', async () => {
    const options = { calmPerSecond: 10, floodPerSecond: 100, calmMs: 1_000, floodMs: 1_000 };
    let seen = 0;
    const refuse =
      (headers: Record<string, string>) => (_request: IncomingMessage, response: ServerResponse) =>
        seen++ % 3 === 0
          ? answerInvocation(response)
          : answerInvocation(response, {
              status: 429,
              headers: { 'x-snapgate-error': 'pool/queue_full', 'x-snapgate-machine': '', ...headers },
            });
    await using good = await startStub(refuse({ 'retry-after': '1' }));
    // A p99 of refusals needs a thousand; the short flood of a test has too few for the scenario's own gate.
    const passed = await runScenario('overload', good.url, options);
    assert.deepEqual(
      passed.thresholds.map((threshold) => threshold.verdict),
      ['met', 'met', 'met', 'undecided'],
    );
    await using bare = await startStub(refuse({}));
    const failed = await runScenario('overload', bare.url, options);
    assert.match(failed.verdict.reasons.join('; '), /Retry-After/);
  });

  for (const isStale of [false, true]) {
    test(`publish-under-load ${isStale ? 'fails when an old version answers after' : 'passes when the new version answers after'} the publish`, async (context) => {
      const directory = await mkdtemp(join(tmpdir(), 'snapgate-template-'));
      context.after(() => rm(directory, { recursive: true }));
      await mkdir(join(directory, 'app'));
      await writeFile(join(directory, 'template.json'), '{}');
      const digestOf = (version: number) => `sha256:${String(version).padStart(64, '0')}`;
      let version = 1;
      await using server = await startStub(
        (_request, response) => {
          const answering = isStale ? 1 : version;
          answerInvocation(response, {
            headers: {
              'x-snapgate-digest': digestOf(answering),
              'x-snapgate-machine': `m${String(answering).padStart(19, '0')}`,
            },
          });
        },
        (request, response) => {
          if (request.method !== 'POST' || request.url !== '/v1/templates/hello/versions') return false;
          void buffer(request).then((archive) => {
            assert.ok(archive.length > 100);
            version += 1;
            const facts = {
              digest: digestOf(version),
              builtAt: 0,
              buildMs: 1,
              memoryBytes: 1,
              stateBytes: 1,
              diskBytes: 1,
              accelerator: 'tcg',
              verifyRestoreMs: 1,
              verifyFirstResponseMs: null,
            };
            response.writeHead(200, { 'content-type': 'application/x-ndjson' });
            response.end(
              `${JSON.stringify({ type: 'result', template: 'hello', version: `v${version}`, digest: facts.digest, unchanged: false, facts })}\n`,
            );
          });
          return true;
        },
      );
      const result = await runScenario('publish-under-load', server.url, {
        directory,
        durationMs: 1_500,
        firstAfterMs: 200,
        publishes: 2,
        afterwards: 5,
      });
      assert.equal(version, 3, result.verdict.reasons.join('; '));
      assert.equal(result.verdict.isPassed, !isStale, result.verdict.reasons.join('; '));
      if (isStale) assert.match(result.verdict.reasons.join('; '), /expected sha256/);
    });
  }

  test('a probe that behaves passes every check, and one that replays random bytes fails the run', async () => {
    const probing = (isStuck: boolean) => {
      let count = 0;
      const stuck = randomBytes(16).toString('hex');
      return startStub((request, response) => {
        const url = new URL(request.url ?? '/', 'http://stub');
        count += 1;
        answerInvocation(response, {
          body: JSON.stringify({
            id: url.searchParams.get('probe'),
            random: isStuck ? stuck : randomBytes(16).toString('hex'),
            clockMs: Date.now(),
            count,
            canaries: [request.headers['x-loadtest-canary']],
          }),
        });
      });
    };
    const loop = { kind: 'open', profile: { kind: 'constant', ratePerSecond: 50, durationMs: 500 } } as const;
    await using good = await probing(false);
    const passed = await runScenario('invoke', good.url, {}, { loop, probe: true, apiKeys: ['a', 'b'] });
    assert.equal(passed.verdict.isPassed, true, passed.verdict.reasons.join('; '));
    assert.deepEqual(
      passed.checks
        .filter((check) => check.examined === 25)
        .map((check) => check.name)
        .sort(),
      ['digest', 'guest-clock', 'invocations', 'random-bytes', 'start-type', 'tenant'],
    );
    await using bad = await probing(true);
    const failed = await runScenario('invoke', bad.url, {}, { loop, probe: true });
    assert.match(failed.verdict.reasons[0]!, /24 violations of “no two answers hold the same random bytes/);
  });
});

for (const replays of [true, false]) {
  test(`a server that ${replays ? 'answers a repeated request as before passes' : 'runs a repeated request again fails the run'}`, async () => {
    const kept = new Map<string, string>();
    let count = 0;
    await using server = await startStub((request, response) => {
      const key = String(request.headers['idempotency-key']);
      const before = replays ? kept.get(key) : undefined;
      const id = new URL(request.url ?? '/', 'http://stub').searchParams.get('probe');
      const random = randomBytes(16).toString('hex');
      const body = before ?? JSON.stringify({ id, random, clockMs: Date.now(), count: ++count });
      kept.set(key, body);
      answerInvocation(response, {
        body,
        headers: before === undefined ? {} : { 'x-snapgate-replayed': 'true' },
      });
    });
    const loop = {
      kind: 'open',
      profile: { kind: 'constant', ratePerSecond: 100, durationMs: 500 },
    } as const;
    const result = await runScenario('invoke', server.url, {}, { loop, probe: true, idempotency: true });
    const check = result.checks.find(({ name }) => name === 'idempotency');
    assert.deepEqual([check?.examined, check?.violations], replays ? [3, 0] : [3, 3]);
    assert.equal(result.verdict.isPassed, replays, result.verdict.reasons.join('; '));
  });
}

test('every built-in scenario has defaults that make a valid schedule and valid thresholds', async () => {
  for (const scenario of builtInScenarios) {
    const options = scenario.options.safeParse(
      scenario.name === 'publish-under-load' ? { directory: '.' } : {},
    );
    assert.ok(options.success, scenario.name);
    profileSchema.parse(scenario.profile(options.data));
  }
});
