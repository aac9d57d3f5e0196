import { z } from 'zod';
import { defineScenario, type Session } from './define.ts';
import { checkUniqueness, createSandbox, type LoadSandbox, sessionDefaults } from './sandbox-wire.ts';

/** A state that takes work to reach: a live process and a file, both of which a clone must have. */
const prepareState = (canary: string) =>
  `echo ${canary} > /tmp/state; nohup sleep 86400 >/dev/null 2>&1 </dev/null & echo $! > /tmp/pid`;
const readState = 'cat /tmp/state; kill -0 $(cat /tmp/pid) && echo alive';

/** One session every so often. */
const regularly = (everyMs: number, sessions: number) =>
  ({ kind: 'constant', ratePerSecond: 1000 / everyMs, durationMs: everyMs * sessions }) as const;
const noneFailed = () => ['count(requests{outcome=failed}) == 0'];

/** A sandbox of the session's template with that state in it, in the steps `create` and `prepare`. */
async function prepared(session: Session<unknown>): Promise<LoadSandbox> {
  const sandbox = await session.step(
    'create',
    () => createSandbox(session, session.template),
    (made) => made.start,
  );
  await session.step('prepare', () => sandbox.run(prepareState(session.canary)));
  return sandbox;
}

async function expectState(session: Session<unknown>, sandbox: LoadSandbox): Promise<void> {
  const { stdout } = await sandbox.run(readState);
  session.check.canary('state', sandbox.id, stdout);
  session.expect(
    stdout === `${session.canary}\nalive\n`,
    `${sandbox.id} lost its state: \`${stdout.slice(0, 80)}\``,
  );
}

/** Many children of one prepared state, each used at once. */
export const forkFanout = defineScenario({
  kind: 'sessions',
  name: 'fork-fanout',
  proves:
    'what the first command in each of N children of one state costs, that every child has the state, and that none shares random bytes',
  options: z.strictObject({
    children: z.number().int().min(1).max(100).default(4),
    everyMs: z.number().int().min(100).default(5_000),
    rounds: z.number().int().min(1).max(10_000).default(10),
  }),
  steps: ['create', 'prepare', 'fork', 'first_command', 'source_command'],
  profile: ({ everyMs, rounds }) => regularly(everyMs, rounds),
  thresholds: noneFailed,
  planDefaults: sessionDefaults,
  async run(session) {
    const source = await prepared(session);
    const children = await session.step('fork', () => source.fork(session.options.children));
    await Promise.all(
      children.map(async (child) => {
        await session.step('first_command', () => checkUniqueness(session, child), child.start);
        await expectState(session, child);
      }),
    );
    // The source must go on as if nothing had happened.
    await session.step('source_command', () => expectState(session, source));
  },
});

/** Explore several continuations, keep the best, go back, again. */
export const agentTree = defineScenario({
  kind: 'sessions',
  name: 'agent-tree',
  proves:
    'what it costs an agent to explore continuations of a state by fork, and to go back to it by rewind',
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
  profile: ({ everyMs, rounds }) => regularly(everyMs, rounds),
  thresholds: noneFailed,
  planDefaults: sessionDefaults,
  async run(session) {
    const { branches, depth } = session.options;
    const root = await prepared(session);
    const snapshot = await session.step('snapshot', () => root.snapshot());
    let current = root;
    const taken: string[] = [];
    for (let level = 0; level < depth; level++) {
      const source = current;
      const children = await session.step('fork', () => source.fork(branches));
      await Promise.all(
        children.map(async (child, branch) => {
          await session.step('first_command', () => checkUniqueness(session, child), child.start);
          await session.step('explore', () => child.run(`echo ${level}.${branch} >> /tmp/path`));
        }),
      );
      const chosen = session.random.below(branches);
      taken.push(`${level}.${chosen}`);
      current = children[chosen]!;
      const given = children.filter((_, branch) => branch !== chosen);
      await Promise.all(given.map((child) => session.step('kill', () => child.kill())));
    }
    const path = await current.run('cat /tmp/path');
    session.check.runs('path of the chosen', current.id, path.stdout.trim().split('\n'), taken);
    await root.run('echo changed > /tmp/state');
    await session.step('rewind', () => root.rewind(snapshot));
    await session.step('after_rewind', () => expectState(session, root));
  },
});

/** Pause and resume, over and over. */
export const pauseResumeChurn = defineScenario({
  kind: 'sessions',
  name: 'pause-resume-churn',
  proves: 'what a pause and a resume cost, round after round, with files and live processes intact',
  options: z.strictObject({
    rounds: z.number().int().min(1).max(1_000).default(10),
    everyMs: z.number().int().min(100).default(10_000),
    sessions: z.number().int().min(1).max(10_000).default(4),
  }),
  steps: ['create', 'prepare', 'pause', 'resume', 'first_command'],
  profile: ({ everyMs, sessions }) => regularly(everyMs, sessions),
  thresholds: noneFailed,
  planDefaults: sessionDefaults,
  async run(session) {
    const sandbox = await prepared(session);
    for (let round = 0; round < session.options.rounds; round++) {
      await session.step('pause', () => sandbox.pause());
      await session.step('resume', () => sandbox.resume());
      await session.step('first_command', () => checkUniqueness(session, sandbox), 'resumed');
      await expectState(session, sandbox);
    }
  },
});
