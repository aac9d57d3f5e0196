import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, before, test } from 'node:test';
import { isGatewayError, type SandboxId } from '../../../sdk/index.ts';
import { type SandboxHarness, startSandboxHarness } from '../../testing/sandbox-harness.ts';
import { runCli } from '../cli.ts';
import { makeContext, run, type Setting, temporaryDirectory } from '../testing/terminal.ts';
import { componentsBelow } from './copy-tree.ts';

let h: SandboxHarness;
let env: Record<string, string>;
before(async () => {
  h = await startSandboxHarness();
  env = { SNAPGATE_URL: h.url, SNAPGATE_API_KEY: h.key };
});
after(() => h[Symbol.asyncDispose]());

type Context = Parameters<typeof run>[0];
const sandbox = (context: Context, words: string[], setting: Setting = {}) =>
  run(context, ['sandbox', ...words], { env, ...setting });
const create = async (context: Context, ...words: string[]) =>
  (await sandbox(context, ['create', 'open', ...words])).stdout.trim();

test('create prints an id, and exec gives the streams and the exit code of a command inside', async (context) => {
  const id = await create(context, '-e', 'GREETING=hei', '-m', 'team=a');
  assert.match(id, /^[a-z0-9]{20}$/);
  const ran = await sandbox(context, [
    'exec',
    id,
    '--',
    '/bin/sh',
    '-c',
    'echo $GREETING --json; echo bad >&2; exit 7',
  ]);
  assert.deepEqual([ran.stdout, ran.stderr, ran.code], ['hei --json\n', 'bad\n', 7]);
  const piped = await sandbox(context, ['exec', '-i', id, '/bin/cat'], { stdin: 'from a pipe' });
  assert.equal(piped.stdout, 'from a pipe');
  const late = await sandbox(context, ['exec', '--timeout-ms', '50', id, '/bin/sleep', '1000']);
  assert.equal(late.code, 124);
});

test('a secret is taken from our environment and never from the command line', async (context) => {
  const made = await sandbox(context, ['create', 'open', '--secret', 'TOKEN'], {
    env: { ...env, TOKEN: 'hush' },
  });
  const ran = await sandbox(context, ['exec', made.stdout.trim(), '/bin/sh', '-c', 'echo $TOKEN']);
  assert.equal(ran.stdout, 'hush\n');
  const missing = await sandbox(context, ['create', 'open', '--secret', 'NOWHERE']);
  assert.equal(missing.code, 2);
});

test('cp takes a file in and out, and cannot copy between two places of one kind', async (context) => {
  const id = await create(context);
  const inside = await h.sandboxes.directoryOf(id as SandboxId);
  const workingDirectory = await temporaryDirectory(context);
  await writeFile(join(workingDirectory, 'in.txt'), 'content', { mode: 0o640 });
  const setting = { workingDirectory };
  assert.equal((await sandbox(context, ['cp', 'in.txt', `${id}:${inside}`], setting)).stderr, '');
  await sandbox(context, ['cp', `${id}:${inside}/in.txt`, 'out.txt'], setting);
  assert.equal(await readFile(join(workingDirectory, 'out.txt'), 'utf8'), 'content');
  await sandbox(context, ['cp', '-', `${id}:${inside}/piped`], { stdin: 'piped' });
  assert.equal((await sandbox(context, ['cp', `${id}:${inside}/piped`, '-'])).stdout, 'piped');
  assert.equal((await sandbox(context, ['cp', 'a', 'b'], setting)).code, 2);
});

test('cp takes a folder in and out with its permissions, and leaves links and special files out', async (context) => {
  const id = await create(context);
  const inside = await h.sandboxes.directoryOf(id as SandboxId);
  const workingDirectory = await temporaryDirectory(context);
  const setting = { workingDirectory };
  const here = (path: string) => join(workingDirectory, path);
  await mkdir(here('tree/deep/er'), { recursive: true });
  await writeFile(here('tree/run.sh'), '#!/bin/sh', { mode: 0o755 });
  await writeFile(here('tree/deep/er/grün 猫'), 'x'.repeat(300_000));
  await symlink('/etc/passwd', here('tree/link'));
  const into = await sandbox(context, ['cp', 'tree', `${id}:${inside}`], setting);
  assert.deepEqual([into.code, into.stderr], [0, `left out ${here('tree/link')}: a symbolic link\n`]);
  assert.equal((await stat(`${inside}/tree/run.sh`)).mode & 0o777, 0o755);
  await symlink('/etc', `${inside}/tree/out`);
  const out = await sandbox(context, ['cp', `${id}:${inside}/tree`, 'copied'], setting);
  assert.deepEqual([out.code, out.stderr], [0, `left out ${inside}/tree/out: a symlink\n`]);
  assert.deepEqual((await readdir(here('copied'), { recursive: true })).sort(), [
    'deep',
    'deep/er',
    'deep/er/grün 猫',
    'run.sh',
  ]);
  assert.equal((await stat(here('copied/run.sh'))).mode & 0o777, 0o755);
  // One that is there takes it in.
  await sandbox(context, ['cp', `${id}:${inside}/tree/deep`, 'copied'], setting);
  assert.equal((await readFile(here('copied/deep/er/grün 猫'), 'utf8')).length, 300_000);
});

test('no entry that a sandbox names leads out of the folder it is copied to', () => {
  assert.deepEqual(componentsBelow('/a', '/a/b/c'), ['b', 'c']);
  assert.deepEqual(componentsBelow('/', '/b'), ['b']);
  for (const path of ['/a', '/a/', '/ab', '/a/../b', '/a/./b', '/a//b', 'b', '/a/b\0'])
    assert.throws(
      () => componentsBelow('/a', path),
      (error) => isGatewayError(error, 'guest_unreachable'),
    );
});

async function inDrawnOrder(context: Context, ...ids: string[]): Promise<string[]> {
  const { stdout } = await sandbox(context, ['tree']);
  return ids.sort((one, other) => stdout.indexOf(one) - stdout.indexOf(other));
}

test('a sandbox is paused, listed, resumed, snapshotted, rewound, forked, drawn and killed', async (context) => {
  const id = await create(context, '-m', 'tree=1');
  assert.equal((await sandbox(context, ['pause', id])).code, 0);
  const list = await sandbox(context, ['ls', '-m', 'tree=1']);
  assert.match(list.stdout, new RegExp(`^SANDBOX .*\\n${id} +open@v1 +paused .*tree=1\\n$`));
  assert.equal((await sandbox(context, ['resume', id])).code, 0);
  const snapshot = (await sandbox(context, ['snapshot', id, '--name', 'base', '--pin'])).stdout.trim();
  assert.equal((await sandbox(context, ['rewind', id, 'snapshot:base'])).code, 0);
  const forked = await sandbox(context, ['fork', id, '-n', '2', '-m', 'child=1']);
  const [first = '', second = ''] = forked.stdout.trim().split('\n');
  // Drawn after the other even if both were made in one millisecond.
  const [one = '', two = ''] = await inDrawnOrder(context, first, second);
  const grandchild = (await sandbox(context, ['fork', two])).stdout.trim();
  const drawn = await sandbox(context, ['tree', id]);
  assert.equal(
    drawn.stdout,
    [
      `${id}  open@v1  running`,
      `├─ ◆ ${snapshot}  snapshot:base  pinned`,
      `├─ ${one}  open@v1  running`,
      `└─ ${two}  open@v1  running`,
      `   └─ ${grandchild}  open@v1  running`,
      '',
    ].join('\n'),
  );
  assert.equal((await sandbox(context, ['kill', two, one])).code, 0);
  const after = (await sandbox(context, ['tree', id])).stdout;
  assert.match(after, /ended \(killed\)/, 'one that left a child is still drawn');
  assert.ok(!after.includes(one));
  const json = JSON.parse((await sandbox(context, ['ls', '--json', '-m', 'child=1'])).stdout);
  assert.deepEqual(
    json.map((info: { id: string }) => info.id),
    [grandchild],
  );
});

test('events are told one a line, from any number on', async (context) => {
  const id = await create(context);
  await sandbox(context, ['kill', id]);
  const told = await run(context, ['events', '--sandbox', id], { env });
  const [first = '', second = ''] = told.stdout.trim().split('\n');
  assert.match(first, new RegExp(`^\\d+  \\d{4}-.*Z  ${id}  created`));
  assert.match(second, / {2}ended/);
  const since = ['events', '--json', '--since', first.split(' ')[0] ?? ''];
  const rest = await run(context, [...since, '--sandbox', id], { env });
  assert.deepEqual(
    rest.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).type),
    ['ended'],
  );
});

test('shell puts the terminal into raw mode, passes keys and sizes, and puts it back', async (context) => {
  const id = await create(context);
  const made = makeContext(await temporaryDirectory(context), { env });
  const modes: boolean[] = [];
  const keyboard = Object.assign(new PassThrough(), {
    isTTY: true,
    setRawMode: (isRaw: boolean) => void modes.push(isRaw),
  });
  const screen = Object.assign(made.context.stdout, { columns: 90, rows: 30 });
  const seen = async (wanted: RegExp) => {
    while (!wanted.test(made.output.stdout)) await new Promise((resolve) => setTimeout(resolve, 5));
  };
  const running = runCli(['sandbox', 'shell', id, '/bin/sh'], { ...made.context, stdin: keyboard });
  keyboard.write('stty size\n');
  await seen(/30 90/);
  assert.deepEqual(modes, [true]);
  screen.columns = 120;
  screen.emit('resize');
  // The size follows the keys at its own pace.
  keyboard.write('while [ "$(stty size)" != "30 120" ]; do :; done; echo gr$((1 + 1))wn\n');
  await seen(/gr2wn/);
  // Ctrl-C goes inside; a shell outlives it.
  keyboard.write(`sh -c 'echo begun$((1 + 1)); sleep 1000'\n`);
  await seen(/begun2/);
  keyboard.write('\x03');
  keyboard.write('exit 3\n');
  assert.equal(await running, 3);
  assert.deepEqual(modes, [true, false]);
  assert.ok(keyboard.destroyed);
});

test('a sandbox that is not there is told with its remedy', async (context) => {
  const { code, stderr } = await sandbox(context, ['exec', 'a'.repeat(20), 'true']);
  assert.equal(code, 1);
  assert.match(stderr, /error\[sandbox_not_found\].*\n.*snapgate sandbox ls/s);
});
