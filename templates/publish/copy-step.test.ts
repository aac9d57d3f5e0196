import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmod, lstat, mkdir, readFile, readlink, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import { isGatewayError, systemClock } from '../../sdk/index.ts';
import { parseDefinition } from '../definition/index.ts';
import { copyFiles } from './copy-step.ts';
import { GuestSession } from './guest-session.ts';
import type { BuildMachine, GuestExit, GuestRunOptions } from './host-port.ts';
import { BuildProgress } from './progress.ts';
import { Workshop } from './testing/workshop.ts';

const signal = new AbortController().signal;

/** A "guest" whose commands run on this host: the scripts and GNU tar are the ones a Debian guest has. */
function localMachine(ids: string): Pick<BuildMachine, 'run' | 'gone' | 'consoleTail'> {
  return {
    gone: new Promise(() => {}),
    consoleTail: async () => '',
    async run(argv: readonly string[], { onOutput, stdin }: GuestRunOptions): Promise<GuestExit> {
      const [program = '', ...rest] = argv;
      if (rest[1]?.startsWith('id -u')) {
        onOutput?.(ids);
        return { exitCode: ids.startsWith('id:') ? 1 : 0, signal: null, isTimedOut: false };
      }
      const child = spawn(program, rest);
      const closed = new Promise<number | null>((resolve) => child.on('close', resolve));
      child.stderr.on('data', (chunk: Buffer) => onOutput?.(chunk.toString()));
      // A tar that fails closes its end early; how it ended says why.
      await pipeline(stdin!, child.stdin).catch(() => undefined);
      return { exitCode: await closed, signal: null, isTimedOut: false };
    },
  };
}

interface Run {
  readonly copy: readonly { from: string; to: string }[];
  readonly ids?: string;
}

async function copyInto(workshop: Workshop, { copy, ids = '4321\n1234\n' }: Run): Promise<BuildProgress> {
  const definition = parseDefinition({ name: 'hello', copy: copy.map((rule) => ({ ...rule })) });
  const session = new GuestSession(localMachine(ids) as BuildMachine, signal);
  const progress = new BuildProgress(systemClock);
  await copyFiles(session, workshop.folder, definition, progress, 20_000);
  return progress;
}

const isRoot = process.getuid?.() === 0;

test('the contents of a folder land in the target with bits, links and owner', async () => {
  await using workshop = await Workshop.open({
    'app/main.py': 'print(1)',
    'app/bin/tool': '#!',
    'app/empty': '',
  });
  await chmod(join(workshop.folder, 'app/bin/tool'), 0o755);
  await symlink('bin/tool', join(workshop.folder, 'app/tool'));
  const target = join(workshop.root, 'guest', 'deep', 'app');
  await copyInto(workshop, {
    copy: [{ from: 'app', to: target }],
    ids: isRoot ? '4321\n1234\n' : 'id: no such user\n',
  });
  assert.equal(await readFile(join(target, 'main.py'), 'utf8'), 'print(1)');
  assert.equal(await readlink(join(target, 'tool')), 'bin/tool');
  assert.equal((await lstat(join(target, 'bin/tool'))).mode & 0o777, 0o755);
  const main = await lstat(join(target, 'main.py'));
  assert.deepEqual([main.mode & 0o777, main.mtimeMs, main.size], [0o644, 0, 8]);
  if (!isRoot) return;
  for (const path of ['', 'bin', 'main.py', 'tool']) {
    const { uid, gid } = await lstat(join(target, path));
    assert.deepEqual([path, uid, gid], [path, 4321, 1234]);
  }
});

test('a target that was there keeps its owner and mode, and a link to a folder in it stays a link', {
  skip: !isRoot,
}, async () => {
  await using workshop = await Workshop.open({ 'rootfs/bin/tool': '#!', 'rootfs/etc/x': '1' });
  const target = join(workshop.root, 'guest');
  for (const name of ['usr/bin', 'etc']) await mkdir(join(target, name), { recursive: true, mode: 0o700 });
  await symlink('usr/bin', join(target, 'bin'));
  await copyInto(workshop, { copy: [{ from: 'rootfs', to: target }] });
  assert.equal(await readlink(join(target, 'bin')), 'usr/bin');
  assert.equal(await readFile(join(target, 'usr/bin/tool'), 'utf8'), '#!');
  const etc = await lstat(join(target, 'etc'));
  assert.deepEqual([etc.uid, etc.mode & 0o777], [0, 0o700]);
  assert.equal((await lstat(join(target, 'etc/x'))).uid, 4321);
});

test('a file is copied under the name it is given, or into a folder when the target ends with a slash', async () => {
  await using workshop = await Workshop.open({ 'conf/app.json': '{}' });
  const target = join(workshop.root, 'guest');
  await copyInto(workshop, {
    copy: [
      { from: 'conf/app.json', to: `${target}/etc/settings.json` },
      { from: 'conf/app.json', to: `${target}/srv/` },
    ],
    ids: 'id: no such user\n',
  });
  assert.equal(await readFile(join(target, 'etc/settings.json'), 'utf8'), '{}');
  assert.equal(await readFile(join(target, 'srv/app.json'), 'utf8'), '{}');
});

test('without the user in the guest, files belong to root', { skip: !isRoot }, async () => {
  await using workshop = await Workshop.open();
  const target = join(workshop.root, 'guest');
  await copyInto(workshop, { copy: [{ from: 'app', to: target }], ids: "id: 'user': no such user\n" });
  assert.equal((await lstat(join(target, 'main.py'))).uid, 0);
});

test('a target that can not be written fails the build with what tar said', async () => {
  await using workshop = await Workshop.open({ 'app/main.py': '1', blocker: '' });
  const to = join(workshop.folder, 'blocker', 'app');
  await assert.rejects(copyInto(workshop, { copy: [{ from: 'app', to }] }), (error) => {
    assert.ok(isGatewayError(error, 'build_failed'));
    assert.match(error.details.output ?? '', /Not a directory/);
    return true;
  });
});
