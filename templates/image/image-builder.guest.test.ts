import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type BootedGuest, bootGuest } from './booted-guest.ts';
import { runCommand } from './command.ts';
import { buildEnvironment } from './debian.ts';
import { createImageBuilder } from './image-builder.ts';

const checkout = join(import.meta.dirname, '../..');
const agentPath = join(checkout, 'templates/agent/build/agent');
const options = { signal: AbortSignal.timeout(600_000) };
const recipe = { suite: 'bookworm', packages: ['python3'] };

let guest: BootedGuest;
before(async () => {
  const builder = createImageBuilder({}, { dataPath: join(checkout, '.snapgate'), agentPath });
  const [kernel, root] = await Promise.all([
    builder.ensureKernel(options),
    builder.ensureRoot(recipe, options),
  ]);
  guest = await bootGuest(kernel, root.rootPath);
});
after(() => guest[Symbol.asyncDispose]());

test('the agent boots from the initramfs with every module loaded and the root mounted', async () => {
  const console = await guest.console();
  assert.match(console, /root is mounted/);
  assert.doesNotMatch(console, /module .*:/);
  const { output } = await guest.run(['cat', '/proc/modules']);
  for (const name of [
    'virtio_pci',
    'virtio_blk',
    'virtio_console',
    'virtio_net',
    'virtio_rng',
    'erofs',
    'overlay',
  ]) {
    assert.match(output, new RegExp(`^${name} `, 'm'));
  }
});

test('the user is there with a home, a shell and the locale, and owns what is theirs', async () => {
  const script =
    'id -un; id -u; pwd; touch ~/mine && stat -c %U ~/mine; cat /etc/default/locale; locale 2>&1';
  const { output } = await guest.run(['bash', '-lc', script], 'user');
  assert.match(output, /^user\n1000\n\/(home\/user)?\nuser\nLANG=C.UTF-8\n/);
  assert.doesNotMatch(output, /Cannot set/);
});

test('Python starts from its compiled files instead of compiling its library at every start', async () => {
  const { output } = await guest.run(['python3', '-v', '-c', 'import http.server, json, uuid']);
  assert.match(output, /http\/__pycache__\/server\.cpython-\d+\.pyc matches/);
  assert.doesNotMatch(output, /bytecode is stale/);
});

test('the root holds no kernel, no package lists, no manuals and no traces of the build', async () => {
  const empty = ['/boot', '/var/lib/apt/lists/partial', '/usr/share/man', '/usr/share/locale', '/var/log'];
  const { output } = await guest.run(['find', ...empty, '-mindepth', '1']);
  assert.equal(output, '');
  const missing = await guest.run([
    'ls',
    '/lib/modules',
    '/usr/sbin/policy-rc.d',
    '/etc/apt/apt.conf.d/99mmdebstrap',
  ]);
  assert.equal(missing.output.match(/No such file or directory/g)?.length, 3);
  assert.equal((await guest.run(['cat', '/etc/machine-id', '/etc/resolv.conf'])).output.trim(), '');
});

test('a disk that fills up while a root is built gives disk_full and leaves nothing behind', async () => {
  const data = await mkdtemp(join(tmpdir(), 'full-'));
  const run = (file: string, argv: string[]) => runCommand(file, argv, { ...options, env: buildEnvironment });
  await run('mount', ['-t', 'tmpfs', '-o', 'size=24m,mode=0755', 'none', data]);
  try {
    // The base system is at hand, so that the disk fills up where a root is made.
    await mkdir(join(data, 'cache'));
    await run('mount', ['--bind', join(checkout, '.snapgate/cache'), join(data, 'cache')]);
    const builder = createImageBuilder({}, { dataPath: data, agentPath });
    await assert.rejects(builder.ensureRoot(recipe, options), { code: 'disk_full' });
    assert.deepEqual(await readdir(join(data, 'images/staging')), []);
    assert.deepEqual((await readdir(join(data, 'images'))).sort(), ['staging']);
    assert.equal((await stat(join(data, 'images'))).mode & 0o777, 0o755);
  } finally {
    await run('umount', ['--recursive', data]);
    await rm(data, { recursive: true });
  }
});
