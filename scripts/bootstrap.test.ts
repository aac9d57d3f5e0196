import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';

const isRoot = process.getuid?.() === 0;
let checkout: string;
let calls: string;

const put = async (path: string, content: string): Promise<void> => {
  await mkdir(dirname(join(checkout, path)), { recursive: true });
  await writeFile(join(checkout, path), content);
};

/** A program on the path that notes how it was called and then does as told. */
async function program(name: string, script: string): Promise<void> {
  await put(
    `bin/${name}`,
    `#!/bin/sh\necho "${name} $*" | tr '\\n' ' ' | sed 's/ *$/\\n/' >> ${calls}\n${script}\n`,
  );
  await chmod(join(checkout, 'bin', name), 0o755);
}

const lock = (version: string): string =>
  JSON.stringify({
    packages: {
      '': { name: 'snapgate' },
      'node_modules/hono': { version, integrity: `sha512-${version}` },
      'node_modules/elsewhere': { version: '1.0.0', optional: true },
    },
  });
const installed = (version: string): string =>
  JSON.stringify({ packages: { 'node_modules/hono': { version, integrity: `sha512-${version}` } } });

/** A checkout in which everything is there, under programs that only note their calls. */
beforeEach(async () => {
  checkout = await mkdtemp(join(tmpdir(), 'bootstrap-'));
  await chmod(checkout, 0o755);
  calls = join(checkout, 'calls');
  await writeFile(calls, '');
  await chmod(calls, 0o666);
  await mkdir(join(checkout, 'scripts'));
  await copyFile(join(import.meta.dirname, 'bootstrap.mjs'), join(checkout, 'scripts/bootstrap.mjs'));
  await put('edge/doctor/packages.json', '[{"package": "mmdebstrap"}, {"package": "gcc"}]');
  await put('package-lock.json', lock('4.0.0'));
  await put('node_modules/.package-lock.json', installed('4.0.0'));
  await put('node_modules/.bin/node', '#!/bin/sh\necho v24.21.0\n');
  await chmod(join(checkout, 'node_modules/.bin/node'), 0o755);
  await program('dpkg-query', 'echo "mmdebstrap ii "; echo "gcc ii "');
  await program('apt-get', 'exit 0');
  await program('npm', 'exit 0');
  await program('make', 'exit 0');
});
afterEach(() => rm(checkout, { recursive: true }));

async function bootstrap(options: { readonly asUser?: boolean } = {}) {
  const script = join(checkout, 'scripts/bootstrap.mjs');
  const command = options.asUser
    ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', process.execPath, script]
    : [process.execPath, script];
  const { status, stdout, stderr } = spawnSync(command[0]!, command.slice(1), {
    encoding: 'utf8',
    env: { PATH: `${join(checkout, 'bin')}:/usr/bin:/bin` },
    timeout: 60_000,
  });
  const called = (await readFile(calls, 'utf8'))
    .split('\n')
    .filter((line) => !/^(dpkg-query|make --question)|^$/.test(line));
  return { status, stdout, stderr, called };
}

test('where everything is there, nothing is said and nothing is done', async () => {
  assert.deepEqual(await bootstrap(), { status: 0, stdout: '', stderr: '', called: [] });
});

test('only packages that are missing are installed, after the list was updated', {
  skip: !isRoot,
}, async () => {
  await program('dpkg-query', 'echo "mmdebstrap rc "; echo "gcc ii "; exit 1');
  const { status, stdout, called } = await bootstrap();
  assert.equal(status, 0);
  assert.equal(called.length, 2);
  assert.match(called[0]!, /^apt-get update/);
  assert.match(called[1]!, /^apt-get .*install --yes --no-install-recommends mmdebstrap$/);
  assert.match(stdout, /✓ installing Debian packages: mmdebstrap \(\d+\.\d s\)/);
});

test('a user who is not root is given the command to run, and nothing is touched', {
  skip: !isRoot,
}, async () => {
  await program('dpkg-query', 'exit 1');
  const { status, stderr, called } = await bootstrap({ asUser: true });
  assert.equal(status, 1);
  assert.deepEqual(called, []);
  assert.match(
    stderr,
    /sudo sh -c 'apt-get update && apt-get install --yes --no-install-recommends mmdebstrap gcc'/,
  );
});

test('npm packages are installed when the lock file says other versions than npm installed', async () => {
  await put('package-lock.json', lock('4.0.1'));
  assert.match((await bootstrap()).called.join(), /^npm ci /);
});

test('npm packages are installed when there are none, or one too many', async () => {
  await put('node_modules/.package-lock.json', JSON.stringify({ packages: {} }));
  assert.match((await bootstrap()).called.join(), /^npm ci /);
  await put('package-lock.json', JSON.stringify({ packages: { '': {} } }));
  await put('node_modules/.package-lock.json', installed('4.0.0'));
  assert.equal((await bootstrap()).called.length, 2);
});

test('Node is fetched by its package when npm did not run the install script', async () => {
  await rm(join(checkout, 'node_modules/.bin/node'));
  await put(
    'node_modules/node/installArchSpecificPackage.js',
    `const fs = require('node:fs'); fs.mkdirSync('bin'); fs.writeFileSync('bin/node', '#!/bin/sh\\necho v24.21.0\\n', { mode: 0o755 });`,
  );
  const { status, stdout } = await bootstrap();
  assert.equal(status, 0);
  assert.match(stdout, /✓ fetching Node 24/);
  assert.equal((await bootstrap()).stdout, '');
});

test('what is out of date is compiled, one part after the other', async () => {
  await program('make', 'case "$*" in *--question*edge/native) exit 1;; esac');
  assert.deepEqual((await bootstrap()).called, ['make --silent -C edge/native']);
});

test('a step that fails names the command and shows both ends of what it said', async () => {
  await put('package-lock.json', lock('4.0.1'));
  await program('npm', 'echo "npm error the reason"; seq 1 500; echo "the last line" >&2; exit 7');
  const { status, stderr } = await bootstrap();
  assert.equal(status, 1);
  assert.match(stderr, /✗ npm ci .*: exit code 7\nnpm error the reason\n/);
  assert.match(stderr, /the last line\n$/);
  assert.ok(stderr.split('\n').length < 45);
});

test('a host without dpkg is told what to install by hand', async () => {
  await rm(join(checkout, 'bin/dpkg-query'));
  const { status, stderr } = spawnSync(process.execPath, [join(checkout, 'scripts/bootstrap.mjs')], {
    encoding: 'utf8',
    env: { PATH: join(checkout, 'bin') },
  });
  assert.equal(status, 1);
  assert.match(stderr, /no dpkg.*mmdebstrap gcc/);
});
