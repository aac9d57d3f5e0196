import { z } from 'zod';
import { defineScenario } from './define.ts';
import { checkUniqueness, createSandbox, sessionDefaults } from './sandbox-wire.ts';

/** What an agent's tool call does: a sandbox, some commands, some files, and away. */
export const sandboxSession = defineScenario({
  kind: 'sessions',
  name: 'sandbox-session',
  proves:
    'what each step of a plain sandbox session costs, that no command is lost or run twice, and that files come back byte for byte',
  options: z.strictObject({
    commands: z.number().int().min(0).max(1_000).default(5),
    files: z.number().int().min(0).max(1_000).default(3),
    fileBytes: z
      .number()
      .int()
      .min(0)
      .max(8 * 1024 * 1024)
      .default(64 * 1024),
    ratePerSecond: z.number().positive().max(1_000).default(0.5),
    durationMs: z.number().int().min(1_000).default(60_000),
  }),
  steps: ['create', 'first_command', 'command', 'write_file', 'read_file', 'list_files', 'kill'],
  profile: ({ ratePerSecond, durationMs }) => ({ kind: 'poisson', ratePerSecond, durationMs }),
  thresholds: () => ['count(requests{outcome=failed}) == 0'],
  planDefaults: sessionDefaults,
  async run(session) {
    const { commands, files, fileBytes } = session.options;
    const sandbox = await session.step(
      'create',
      () => createSandbox(session, session.template),
      (made) => made.start,
    );
    await session.step('first_command', () => checkUniqueness(session, sandbox), sandbox.start);
    const runs = Array.from({ length: commands }, (_, index) => `${session.canary}.${index}`);
    for (const run of runs) {
      const ran = await session.step('command', () => sandbox.run(`echo ${run} | tee -a /tmp/runs`));
      session.check.canary('command', sandbox.id, ran.stdout);
      session.expect(ran.stdout === `${run}\n`, `\`${run}\` printed \`${ran.stdout.slice(0, 80)}\``);
    }
    for (let index = 0; index < files; index++) {
      const bytes = Uint8Array.from({ length: fileBytes }, () => session.random.below(256));
      const path = `/tmp/loadtest-${index}`;
      await session.step('write_file', () => sandbox.writeFile(path, bytes));
      const back = await session.step('read_file', () => sandbox.readFile(path));
      session.expect(back.equals(bytes), `${path} came back different`);
    }
    const left = await sandbox.run('touch /tmp/runs; cat /tmp/runs');
    session.check.runs('commands', sandbox.id, left.stdout.split('\n').filter(Boolean), runs);
    await session.step('list_files', () => sandbox.listFiles('/tmp'));
    await session.step('kill', () => sandbox.kill());
  },
});

/** The figure this market quotes: from asking for a sandbox to its first command's answer. */
export const tti = defineScenario({
  kind: 'sessions',
  name: 'tti',
  proves: 'time to interactive: from asking for a sandbox to the answer of its first command',
  options: z.strictObject({
    mode: z
      .enum(['sequential', 'staggered', 'burst'])
      .default('sequential')
      .describe('one at a time with room between, overlapping, or all at one instant'),
    sandboxes: z.number().int().min(1).max(10_000).default(100),
    gapMs: z.number().int().min(10).default(1_000).describe('between two sandboxes, unless in a burst'),
  }),
  steps: ['create', 'first_command'],
  profile({ mode, sandboxes, gapMs }) {
    if (mode === 'burst') return { kind: 'burst', size: sandboxes, everyMs: 60_000, durationMs: 60_000 };
    // Sequential leaves each sandbox ten gaps, which is far longer than it takes; the open loop stays open.
    const spacingMs = mode === 'sequential' ? gapMs : gapMs / 10;
    return {
      kind: 'constant',
      ratePerSecond: 1000 / spacingMs,
      durationMs: Math.ceil(sandboxes * spacingMs),
    };
  },
  thresholds: () => ['count(requests{outcome=failed}) == 0'],
  planDefaults: sessionDefaults,
  async run(session) {
    const sandbox = await session.step(
      'create',
      () => createSandbox(session, session.template),
      (made) => made.start,
    );
    await session.step('first_command', () => checkUniqueness(session, sandbox), sandbox.start);
  },
});
