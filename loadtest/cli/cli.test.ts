import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import type { PoolSimulator } from '../capacity/simulator-port.ts';
import { resultSchema } from '../record/result.ts';
import { reportFiles } from '../report/write.ts';
import { answerInvocation, startStub } from '../testing/stub-server.ts';
import { loadtestCommand } from './command.ts';

let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'snapgate-loadtest-'));
});
after(() => rm(directory, { recursive: true }));

/** Any number of nodes is enough for it. */
const ampleSimulator: PoolSimulator = {
  async simulate(arrivals) {
    let invocations = 0;
    for await (const _ of arrivals) invocations += 1;
    return {
      ...{ invocations, refused: 0, hitRate: 1, addedWaitP50Ms: 1, addedWaitP99Ms: 2 },
      ...{ peakMachines: 50, memoryByteHours: 2 ** 30 },
    };
  },
};

async function loadtest(url: string, ...words: string[]) {
  const text = { stdout: '', stderr: '' };
  const stream = (name: 'stdout' | 'stderr') =>
    new Writable({
      write(chunk, _encoding, done) {
        text[name] += String(chunk);
        done();
      },
    });
  let code = 0;
  const command = loadtestCommand({
    stdout: stream('stdout'),
    stderr: stream('stderr'),
    interrupted: new AbortController().signal,
    setExitCode: (given) => {
      code = given;
    },
    connection: () => ({ url }),
    simulator: async () => ampleSimulator,
  });
  await command.parseAsync(words, { from: 'user' });
  return { code, ...text };
}

/** Wide limits: a busy test machine must not decide. */
const quick = ['-t', 'hello', '--rate', '50', '-d', '400ms', '--max-lag', '10s', '--max-dropped', '0.9'];
const answering = () => startStub((_request, response) => answerInvocation(response));

describe('run', () => {
  test('writes every form into a directory and ends with 0 when all gates hold', async () => {
    await using server = await answering();
    const out = join(directory, 'all');
    const { code, stdout, stderr } = await loadtest(
      server.url,
      'run',
      ...quick,
      '--threshold',
      'count(requests{outcome=ok}) == 20',
      '--out',
      out,
      '--raw',
      join(directory, 'raw.ndjson'),
    );
    assert.equal(code, 0, stdout + stderr);
    assert.match(stdout, /PASSED/);
    assert.deepEqual((await readdir(out)).sort(), Object.values(reportFiles).sort());
    const result = resultSchema.parse(JSON.parse(await readFile(join(out, 'result.json'), 'utf8')));
    assert.equal(result.outcomes.ok, 20);
    const raw = (await readFile(join(directory, 'raw.ndjson'), 'utf8')).trim().split('\n');
    assert.equal(raw.length, 20);
    assert.equal(JSON.parse(raw[0]!).start, 'reused');
  });

  test('ends with 99 when a threshold is missed', async () => {
    await using server = await answering();
    const { code, stdout } = await loadtest(server.url, 'run', ...quick, '--threshold', 'max(latency) < 1us');
    assert.equal(code, 99);
    assert.match(stdout, /FAILED\n {2}- threshold missed: max\(latency\) < 1us/);
  });

  test('ends with 1 and sends nothing when a threshold names an unknown metric', async () => {
    await using server = await answering();
    const { code, stderr } = await loadtest(server.url, 'run', ...quick, '--threshold', 'p99(latenzy) < 1s');
    assert.equal(code, 1);
    assert.match(stderr, /unknown metric `latenzy`/);
    assert.equal(server.received, 0);
  });

  for (const [what, words, message] of [
    ['two schedules', ['-t', 'hello', '--rate', '1', '--closed', '2'], /give one of/],
    ['no template', ['--rate', '1'], /--template/],
    ['a bad template name', ['-t', 'Hello_', '--rate', '1'], /template name/],
    ['an unknown scenario', ['nonsense', '-t', 'hello'], /no scenario `nonsense`/],
    ['an unknown option of the scenario', ['-t', 'hello', '-o', 'color=red'], /color|unrecognized/i],
    ['a profile with an unknown key', ['-t', 'hello', '--profile', '{"kind":"constant","rate":1}'], /loop/],
    ['a trace without its format', ['-t', 'hello', '--trace', 'x.csv'], /format/],
  ] as const) {
    test(`ends with 1 and says what is wrong for ${what}`, async () => {
      await using server = await answering();
      const { code, stderr } = await loadtest(server.url, 'run', ...words);
      assert.equal(code, 1);
      assert.match(stderr, message);
      assert.equal(server.received, 0);
    });
  }

  test('runs a scenario file, and refuses one that is none', async () => {
    await using server = await answering();
    const file = join(directory, 'mine.ts');
    await writeFile(
      file,
      `import { z } from ${JSON.stringify(import.meta.resolve('zod'))};
import { defineScenario } from ${JSON.stringify(new URL('../index.ts', import.meta.url).href)};
export default defineScenario({
  kind: 'sessions', name: 'mine', proves: 'that files run',
  options: z.strictObject({}), steps: ['look'],
  profile: () => ({ kind: 'constant', ratePerSecond: 10, durationMs: 300 }),
  async run(session) { await session.step('look', () => session.http.send({ method: 'GET', path: '/fn/hello/' })); },
});`,
    );
    const ran = await loadtest(server.url, 'run', file, '-t', 'hello', '--max-lag', '10s', '--json');
    assert.equal(ran.code, 0, ran.stderr);
    const result = resultSchema.parse(JSON.parse(ran.stdout));
    assert.equal(result.outcomes.ok, 3);
    assert.equal(result.series.find(({ metric }) => metric === 'step')?.summary.count, 3);
    const none = join(directory, 'none.ts');
    await writeFile(none, 'export default 1;');
    const refused = await loadtest(server.url, 'run', none, '-t', 'hello');
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /must export the answer of defineScenario/);
  });
});

test('report renders a written result again, and refuses a file that is none', async () => {
  await using server = await answering();
  const file = join(directory, 'one.json');
  await loadtest(server.url, 'run', ...quick, '--json-out', file);
  assert.match(
    (await loadtest('', 'report', file, '--as', 'markdown')).stdout,
    /^# Load test: invoke – passed/,
  );
  assert.match((await loadtest('', 'report', file)).stdout, /PASSED/);
  const other = join(directory, 'other.json');
  await writeFile(other, JSON.stringify({ schema: 'snapgate.loadtest/3' }));
  const refused = await loadtest('', 'report', other);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /this harness reads snapgate.loadtest\/2/);
});

test('compare ends with 0 for a result against itself', async () => {
  await using server = await answering();
  const file = join(directory, 'same.json');
  await loadtest(server.url, 'run', ...quick, '--json-out', file);
  const { code, stdout } = await loadtest('', 'compare', file, file);
  assert.equal(code, 0);
  assert.match(stdout, /latency all p50/);
});

test('trace make and show agree on what was written', async () => {
  const file = join(directory, 'made.csv');
  assert.equal(
    (await loadtest('', 'trace', 'make', file, '--format', 'azure-2021', '--minutes', '5')).code,
    0,
  );
  const { stdout } = await loadtest('', 'trace', 'show', file, '--format', 'azure-2021', '--json');
  const facts = JSON.parse(stdout);
  const rows = (await readFile(file, 'utf8')).trim().split('\n').length - 1;
  assert.equal(facts.invocations, rows);
});

test('plan says how many nodes a trace needs, and how that was checked', async () => {
  const file = join(directory, 'planned.csv');
  await loadtest('', 'trace', 'make', file, '--format', 'azure-2021', '--functions', '3', '--minutes', '2');
  const words = ['plan', file, '--format', 'azure-2021', '--machine-memory', '40MiB'];
  const told = await loadtest('', ...words, '--restore', '30ms');
  assert.equal(told.code, 0, told.stderr);
  assert.match(told.stdout, /^1 node of 16 GiB hold/);
  assert.match(told.stdout, /How this was checked:\n {2}machines, against the most invocations of the trace/);
  assert.match(told.stdout, /Not checked against a measured replay/);
  const asked = await loadtest('', ...words);
  assert.match(asked.stderr, /time of a restore is not known/);
});

test('calibrate measures the generator and leaves no process behind', async () => {
  const { code, stdout } = await loadtest(
    '',
    'calibrate',
    '--rate',
    '100',
    '-d',
    '500ms',
    '--max-lag',
    '1m',
    '--json',
  );
  const found = JSON.parse(stdout);
  // Too few requests for a p99 is not a rate that was reached.
  assert.equal(code, 99);
  assert.equal(found.answeredPerSecond, 100);
  assert.equal(await readFile(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8'), '');
});

test('every scenario is listed with what it proves', async () => {
  const { stdout } = await loadtest('', 'scenarios', '--json');
  for (const scenario of JSON.parse(stdout)) assert.ok(scenario.proves.length > 20, scenario.name);
});
