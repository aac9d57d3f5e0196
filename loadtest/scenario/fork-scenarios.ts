import { z } from 'zod';
import { defineScenario } from './define.ts';
import { checkUniqueness, createSandbox, type LoadSandbox } from './sandbox-wire.ts';

/** A state that takes work to reach: memory of a live process and a file. */
const prepareState = (token: string) =>
  `echo ${token} > /tmp/state; nohup sleep 86400 >/dev/null 2>&1 </dev/null & echo $! > /tmp/pid; cat /tmp/state`;
const readState = 'cat /tmp/state; kill -0 $(cat /tmp/pid) && echo alive';

/** Many children of one prepared state, each used at once. */
export const forkFanout = defineScenario({
  kind: 'sessions',
  name: 'fork-fanout',
  proves:
    'what the first command in each of N children of one state costs, that every child has the state, and that none shares random bytes',
  ranAgainst: 'stub',
  options: z.strictObject({
    children: z.number().int().min(1).max(256).default(4),
    everyMs: z.number().int().min(100).default(5_000),
    rounds: z.number().int().min(1).max(10_000).default(10),
  }),
  steps: ['create', 'prepare', 'fork', 'first_command', 'source_command'],
  profile: ({ everyMs, rounds }) => ({
    kind: 'constant',
    ratePerSecond: 1000 / everyMs,
    durationMs: everyMs * rounds,
  }),
  thresholds: () => ['count(requests{outcome=failed}) == 0'],
  planDefaults: { leakCheck: true },
  async run(session) {
    const token = `t${session.random.below(1_000_000_000)}`;
    const source = await session.step(
      'create',
      () => createSandbox(session, session.template),
      (made) => made.start,
    );
    await session.step('prepare', () => source.run(prepareState(token)));
    const children = await session.step('fork', () => source.fork(session.options.children));
    await Promise.all(
      children.map(async (child) => {
        await session.step('first_command', () => checkUniqueness(session, child), 'forked');
        await expectState(session, child, token);
      }),
    );
    // The source must go on as if nothing had happened.
    await session.step('source_command', () => expectState(session, source, token));
  },
});

/** Explore several continuations, keep the best, go back, again. */
export const agentTree = defineScenario({
  kind: 'sessions',
  name: 'agent-tree',
  proves:
    'what it costs an agent to explore continuations of a state by fork, and to go back to it by rewind',
  ranAgainst: 'stub',
  options: z.strictObject({
    branches: z.number().int().min(1).max(64).default(3),
    depth: z.number().int().min(1).max(32).default(3),
    everyMs: z.number().int().min(100).default(15_000),
    rounds: z.number().int().min(1).max(10_000).default(4),
  }),
  steps: [
    'create',
    'prepare',
    'snapshot',
    'fork',
    'first_command',
    'explore',
    'kill',
    'rewind',
    'after_rewind',
  ],
  profile: ({ everyMs, rounds }) => ({
    kind: 'constant',
    ratePerSecond: 1000 / everyMs,
    durationMs: everyMs * rounds,
  }),
  thresholds: () => ['count(requests{outcome=failed}) == 0'],
  planDefaults: { leakCheck: true },
  async run(session) {
    const { branches, depth } = session.options;
    const token = `t${session.random.below(1_000_000_000)}`;
    const root = await session.step(
      'create',
      () => createSandbox(session, session.template),
      (made) => made.start,
    );
    await session.step('prepare', () => root.run(prepareState(token)));
    const snapshot = await session.step('snapshot', () => root.snapshot());
    let current = root;
    for (let level = 0; level < depth; level++) {
      const source = current;
      const children = await session.step('fork', () => source.fork(branches));
      await Promise.all(
        children.map(async (child, branch) => {
          await session.step('first_command', () => checkUniqueness(session, child), 'forked');
          await session.step('explore', () => child.run(`echo ${level}.${branch} >> /tmp/path`));
        }),
      );
      const chosen = session.random.below(branches);
      current = children[chosen]!;
      const given = children.filter((_, branch) => branch !== chosen);
      await Promise.all(given.map((child) => session.step('kill', () => child.kill())));
    }
    const path = await current.run('cat /tmp/path');
    session.expect(
      path.stdout.trim().split('\n').length === depth,
      `a path of ${depth} steps reads \`${path.stdout.slice(0, 80)}\``,
    );
    await root.run('echo changed > /tmp/state');
    await session.step('rewind', () => root.rewind(snapshot));
    await session.step('after_rewind', () => expectState(session, root, token));
  },
});

/** Pause and resume, over and over. */
export const pauseResumeChurn = defineScenario({
  kind: 'sessions',
  name: 'pause-resume-churn',
  proves: 'what a pause and a resume cost, round after round, with files and live processes intact',
  ranAgainst: 'stub',
  options: z.strictObject({
    rounds: z.number().int().min(1).max(1_000).default(10),
    everyMs: z.number().int().min(100).default(10_000),
    sessions: z.number().int().min(1).max(10_000).default(4),
  }),
  steps: ['create', 'prepare', 'pause', 'resume', 'first_command'],
  profile: ({ everyMs, sessions }) => ({
    kind: 'constant',
    ratePerSecond: 1000 / everyMs,
    durationMs: everyMs * sessions,
  }),
  thresholds: () => ['count(requests{outcome=failed}) == 0'],
  planDefaults: { leakCheck: true },
  async run(session) {
    const token = `t${session.random.below(1_000_000_000)}`;
    const sandbox = await session.step(
      'create',
      () => createSandbox(session, session.template),
      (made) => made.start,
    );
    await session.step('prepare', () => sandbox.run(prepareState(token)));
    for (let round = 0; round < session.options.rounds; round++) {
      await session.step('pause', () => sandbox.pause());
      await session.step('resume', () => sandbox.resume());
      await session.step('first_command', () => checkUniqueness(session, sandbox), 'restored');
      await expectState(session, sandbox, token);
    }
  },
});

async function expectState(
  session: { expect(condition: boolean, detail: string): void },
  sandbox: LoadSandbox,
  token: string,
): Promise<void> {
  const ran = await sandbox.run(readState);
  session.expect(
    ran.stdout === `${token}\nalive\n`,
    `${sandbox.id} lost its state: \`${ran.stdout.slice(0, 80)}\``,
  );
}
