import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { finishTree, keepArchives, prepareInstall, trimSeed } from './tree.ts';

const isRoot = process.getuid?.() === 0;
let work: string;
let tree: string;
let archives: string;

const put = async (path: string, content = ''): Promise<void> => {
  await mkdir(dirname(join(tree, path)), { recursive: true });
  await writeFile(join(tree, path), content);
};
const text = (path: string): Promise<string> => readFile(join(tree, path), 'utf8');

beforeEach(async () => {
  work = await mkdtemp(join(tmpdir(), 'tree-'));
  tree = join(work, 'tree');
  archives = join(work, 'archives');
  await put('etc/passwd', 'root:x:0:0:root:/root:/bin/bash\n');
  await put('etc/group', 'root:x:0:\n');
  await put('etc/shadow', 'root:*:1:0:99999:7:::\n');
  await put('etc/skel/.profile', 'umask 022\n');
  await put('etc/dpkg/dpkg.cfg.d/99mmdebstrap', 'force-unsafe-io\n');
  await put('etc/apt/apt.conf.d/99mmdebstrap', 'Acquire::http::Proxy "http://proxy";\n');
  await put('usr/share/doc/tool/copyright', 'licence');
  await put('usr/share/doc/tool/changelog.gz');
  await put('usr/share/man/man1/tool.1.gz');
  await put('usr/sbin/tool');
  await put('var/cache/apt/archives/lock');
  await put('var/lib/apt/lists/InRelease');
  await put('var/lib/dpkg/status-old');
  await put('var/log/dpkg.log', 'lines');
  await put('tmp/junk');
  await put('dev/null');
});
afterEach(() => rm(work, { recursive: true }));

test('a trimmed seed keeps licences, but no manuals and nothing of how it was fetched', async () => {
  await trimSeed(tree);
  assert.deepEqual(await readdir(join(tree, 'usr/share/doc/tool')), ['copyright']);
  assert.deepEqual(await readdir(join(tree, 'usr/share/man')), []);
  assert.deepEqual(await readdir(join(tree, 'etc/apt/apt.conf.d')), []);
  assert.match(await text('etc/dpkg/dpkg.cfg.d/snapgate'), /^path-exclude=\/usr\/share\/doc\/\*$/m);
});

test('packages fetched for one root are there for the next', async () => {
  await prepareInstall(tree, archives);
  await put('var/cache/apt/archives/tool_1.deb', 'package');
  await keepArchives(tree, archives);
  assert.deepEqual(await readdir(archives), ['tool_1.deb']);
  await prepareInstall(tree, archives);
  assert.equal(await text('var/cache/apt/archives/tool_1.deb'), 'package');
  assert.deepEqual(await readdir(archives), ['tool_1.deb']);
});

test('no service starts while packages are installed, and the guest has no trace of that', async () => {
  await prepareInstall(tree, archives);
  assert.match(await text('usr/sbin/policy-rc.d'), /exit 101/);
  assert.equal((await stat(join(tree, 'usr/sbin/policy-rc.d'))).mode & 0o777, 0o755);
  if (!isRoot) return;
  await finishTree(tree);
  assert.deepEqual(await readdir(join(tree, 'usr/sbin')), ['tool']);
});

test('a finished tree has the user once, and no logs, lists, archives or temporary files', {
  skip: !isRoot,
}, async () => {
  await finishTree(tree);
  await finishTree(tree);
  assert.equal((await text('etc/passwd')).match(/^user:x:1000:1000::\/home\/user:\/bin\/bash$/gm)?.length, 1);
  assert.match(await text('etc/shadow'), /^user:\*:/m);
  assert.equal(await text('home/user/.profile'), 'umask 022\n');
  assert.equal((await stat(join(tree, 'home/user/.profile'))).uid, 1000);
  assert.equal(await text('etc/machine-id'), '');
  assert.equal(await text('etc/default/locale'), 'LANG=C.UTF-8\n');
  for (const path of ['dev', 'tmp', 'var/log']) assert.deepEqual(await readdir(join(tree, path)), [], path);
  assert.deepEqual(await readdir(join(tree, 'var/lib/apt/lists')), ['partial']);
  assert.deepEqual(await readdir(join(tree, 'var/cache/apt')), ['archives']);
  assert.deepEqual(await readdir(join(tree, 'var/lib/dpkg')), []);
});
