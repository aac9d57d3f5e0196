import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, normalize } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createGzip } from 'node:zlib';
import { create } from 'tar';
import { z } from 'zod';
import { createAdminClient, headerNames } from '../../sdk/index.ts';
import { defineScenario, type Session } from './define.ts';
import { invocationOptions, prepareInvocations } from './invoke.ts';

const options = z.strictObject({
  ...invocationOptions,
  directory: z.string().min(1).describe('template folder to publish again and again'),
  touch: z
    .string()
    .default('app/loadtest-publish.txt')
    .refine((path) => !normalize(path).startsWith('..') && !path.startsWith('/'), 'must stay in the folder')
    .describe('file in it that is rewritten, so that each publish is a new version; a `copy` must take it'),
  ratePerSecond: z.number().positive().max(100_000).default(20),
  durationMs: z.number().int().min(1_000).default(120_000),
  publishes: z.number().int().min(1).max(100).default(2),
  firstAfterMs: z.number().int().min(0).default(5_000),
  afterwards: z
    .number()
    .int()
    .min(1)
    .max(1_000)
    .default(50)
    .describe('calls after each publish that must meet it'),
});
type Options = z.output<typeof options>;

/** New versions of a template while it is being called. */
export const publishUnderLoad = defineScenario({
  kind: 'requests',
  name: 'publish-under-load',
  proves:
    'that publishing a template again fails no request, and that every call after the publish is answered by the new version',
  options,
  steps: ['publish', 'first_answers'],
  profile: ({ ratePerSecond, durationMs }) => ({ kind: 'constant', ratePerSecond, durationMs }),
  thresholds: () => [
    'count(requests{outcome=failed}) == 0',
    'count(requests{outcome=timeout}) == 0',
    'count(requests{outcome=refused}) == 0',
  ],
  prepare: prepareInvocations,
  async background(session) {
    await sleep(session.options.firstAfterMs, undefined, { signal: session.signal });
    const copy = await mkdtemp(join(tmpdir(), 'snapgate-publish-'));
    session.defer(() => rm(copy, { recursive: true }));
    await cp(session.options.directory, copy, { recursive: true });
    for (let round = 1; round <= session.options.publishes; round++) {
      const digest = await session.step('publish', () => publish(session, copy, round));
      await session.step('first_answers', () => expectDigest(session, digest));
    }
  },
});

async function publish(session: Session<Options>, directory: string, round: number): Promise<string> {
  const touched = join(directory, session.options.touch);
  await mkdir(dirname(touched), { recursive: true });
  await writeFile(touched, `${crypto.randomUUID()} ${round}\n`);
  const archive = create({ cwd: directory, portable: true }, ['.']).pipe(createGzip());
  const client = createAdminClient(session.connection);
  let digest = '';
  for await (const event of client.publish(session.template, archive, { signal: session.signal })) {
    if (event.type !== 'result') continue;
    session.expect(
      !event.unchanged,
      `publish ${round} was taken for unchanged; is ${session.options.touch} copied?`,
    );
    digest = event.digest;
  }
  return digest;
}

/** The alias has moved by the time the publish answers: nobody may meet the old version any more. */
async function expectDigest(session: Session<Options>, digest: string): Promise<void> {
  for (let call = 0; call < session.options.afterwards; call++) {
    const answer = await session.http.send({
      method: session.options.method,
      path: `/fn/${session.template}${session.options.path}`,
      headers: session.options.headers,
    });
    const machine = String(answer.headers[headerNames.machine] ?? '');
    session.check.digest(
      'first answers after a publish',
      machine,
      String(answer.headers[headerNames.digest] ?? ''),
      digest,
    );
  }
}
