import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { create } from 'tar';
import { isGatewayError } from '../../../sdk/index.ts';
import { baseOf, buildStartSchema } from './schemas.ts';
import { type BuildState, scriptStep } from './script.ts';

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;
let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sg-script-'));
  await mkdir(join(folder, 'context/app/deep'), { recursive: true });
  await writeFile(join(folder, 'context/app/a b.txt'), 'a b');
  await writeFile(join(folder, 'context/app/c.py'), 'c');
  await writeFile(join(folder, 'context/app/deep/d.txt'), 'd');
  await create({ gzip: true, file: join(folder, '0.tar'), cwd: join(folder, 'context') }, ['app']);
});
after(() => rm(folder, { recursive: true }));

const state: BuildState = { env: {}, user: 'root', workdir: '/' };
const hash = '0'.repeat(64);

/** Runs a step here and answers what it printed. */
async function perform(type: 'COPY' | 'RUN', args: string[], from: BuildState = state): Promise<string> {
  const { script } = scriptStep({ type, args, filesHash: hash, force: false }, from, 0, folder);
  return (await run('bash', ['-c', `set -e\n${script}`])).stdout;
}

test('COPY puts files, folders and what matches a pattern where Docker would', async (context) => {
  if (!isRoot) return context.skip('needs root');
  const to = (name: string) => join(folder, 'to', name);
  await perform('COPY', ['app', to('folder')]);
  assert.deepEqual((await readdir(to('folder'), { recursive: true })).sort(), [
    'a b.txt',
    'c.py',
    'deep',
    'deep/d.txt',
  ]);
  await perform('COPY', ['app/a b.txt', to('renamed')]);
  assert.equal(await readFile(to('renamed'), 'utf8'), 'a b');
  await perform('COPY', ['app/c.py', `${to('kept')}/`, '', '0700']);
  assert.equal((await stat(to('kept/c.py'))).mode & 0o777, 0o700);
  await perform('COPY', ['app/*', to('matched')]);
  assert.deepEqual((await readdir(to('matched'))).sort(), ['a b.txt', 'c.py', 'deep']);
  await assert.rejects(perform('COPY', ['app/*.none', to('nothing')]), /nothing matches/);
});

test('RUN sees the env and the directory of the steps before it, letter by letter', async (context) => {
  if (!isRoot) return context.skip('needs root');
  const env = { ODD: `it's "$HOME" \`id\` ü` };
  const said = await perform('RUN', ['printf "%s|%s" "$ODD" "$PWD"; echo "|it\'s"'], {
    ...state,
    env,
    workdir: folder,
  });
  assert.equal(said, `${env.ODD}|${folder}|it's\n`);
});

test('steps that mean nothing are refused with their place', () => {
  for (const step of [
    { type: 'COPY', args: ['../x', '/y'] },
    { type: 'COPY', args: ['/x', '/y'] },
    { type: 'COPY', args: ['x', '/y', 'a;b'] },
    { type: 'COPY', args: ['x', '/y', '', '9'] },
    { type: 'RUN', args: [''] },
    { type: 'RUN', args: ['true', '$(id)'] },
    { type: 'ENV', args: ['A'] },
    { type: 'ENV', args: ['A B', 'c'] },
    { type: 'WORKDIR', args: ['relative'] },
    { type: 'USER', args: ['a b'] },
  ] as const)
    assert.throws(
      () => scriptStep({ ...step, args: [...step.args], filesHash: hash, force: false }, state, 3, '/'),
      (error) => isGatewayError(error, 'invalid_request') && error.details.field === 'steps.3',
      JSON.stringify(step),
    );
});

test('only what can be built upon is: Debian, the SDK’s own base, and templates', () => {
  const from = (fields: object) => baseOf(buildStartSchema.parse(fields));
  assert.deepEqual(from({}), { kind: 'template', template: 'base' });
  assert.deepEqual(from({ fromImage: 'e2bdev/base:latest' }), { kind: 'template', template: 'base' });
  assert.deepEqual(from({ fromImage: 'debian:bookworm' }), { kind: 'debian' });
  assert.deepEqual(from({ fromTemplate: 'site:blue' }), { kind: 'template', template: 'site:blue' });
  for (const fields of [
    { fromImage: 'ubuntu:22.04' },
    { fromImage: 'debian:trixie' },
    { fromImageRegistry: { type: 'aws' } },
  ])
    assert.throws(
      () => from(fields),
      (error) => isGatewayError(error, 'not_supported_yet'),
      JSON.stringify(fields),
    );
  assert.throws(
    () => from({ fromImage: 'debian', fromTemplate: 'x' }),
    (error) => isGatewayError(error, 'invalid_request'),
  );
});
