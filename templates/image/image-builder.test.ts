import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, open, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { GatewayError } from '../../sdk/index.ts';
import { type RunCommand, runCommand } from './command.ts';
import { createImageBuilder, type ImageBuilder } from './image-builder.ts';

const skip = process.getuid?.() !== 0 && 'images are built by root';
const never = new AbortController().signal;
const dayMs = 24 * 3_600_000;

let data: string;
let now: number;
beforeEach(async () => {
  data = await mkdtemp(join(tmpdir(), 'builder-'));
  now = 1_800_000_000_000;
});
afterEach(() => rm(data, { recursive: true }));

/** Makes what mmdebstrap would, as far as the next steps look at it. */
async function fakeBootstrap(tree: string): Promise<void> {
  const directories = ['etc/skel', 'etc/dpkg/dpkg.cfg.d', 'etc/apt/apt.conf.d', 'usr/share/doc', 'usr/sbin'];
  for (const path of [...directories, 'var/lib/apt/lists', 'var/lib/dpkg', 'var/cache/apt/archives']) {
    await mkdir(join(tree, path), { recursive: true });
  }
  for (const name of ['passwd', 'group', 'shadow']) await writeFile(join(tree, 'etc', name), 'root:x:0:0\n');
  const release = 'Origin: Debian\nDate: Sat, 28 Nov 2026 02:53:00 UTC\n';
  await writeFile(join(tree, 'var/lib/apt/lists/debian_InRelease'), release);
}

/** Real copying and packing; bootstrapping and apt are played, so that no network is needed. */
function fakePrograms() {
  const started: string[] = [];
  let installing = 0;
  const seen = { started, mostInstalling: 0, onInstall: async (_signal: AbortSignal): Promise<void> => {} };
  const run: RunCommand = async (file, argv, options) => {
    if (file === 'apt-config') return { stdout: '' };
    if (file === 'dpkg-query') return { stdout: 'bash=5.2\n' };
    if (file !== 'unshare') return runCommand(file, argv, options);
    if (argv.includes('mmdebstrap')) {
      started.push('bootstrap');
      await fakeBootstrap(argv.at(-1)!);
      return { stdout: '' };
    }
    started.push(`install ${argv.slice(argv.indexOf('--') + 1).join(' ')}`);
    installing += 1;
    seen.mostInstalling = Math.max(seen.mostInstalling, installing);
    try {
      await seen.onInstall(options.signal);
      const tree = argv.find((argument) => argument.startsWith('--root='))!.slice('--root='.length);
      await writeFile(join(tree, 'usr', argv.at(-1)!), argv.at(-1)!);
    } finally {
      installing -= 1;
    }
    return { stdout: '' };
  };
  return { seen, run };
}

const builderOver = (run: RunCommand): ImageBuilder =>
  createImageBuilder({ run, now: () => now }, { dataPath: data, agentPath: join(data, 'agent') });

async function assertNothingHalfMade(): Promise<void> {
  for (const path of ['images/staging', 'cache/staging']) {
    if (existsSync(join(data, path))) assert.deepEqual(await readdir(join(data, path)), [], path);
  }
}

test('callers who want the same root at the same time get one build', { skip }, async () => {
  const { seen, run } = fakePrograms();
  const builder = builderOver(run);
  const lines: string[] = [];
  const flight = { signal: never, onProgress: ({ message }: { message: string }) => lines.push(message) };
  const [first, second] = await Promise.all([
    builder.ensureRoot({ suite: 'bookworm', packages: ['curl', 'bash'] }, flight),
    builder.ensureRoot({ suite: 'bookworm', packages: ['bash', 'curl'] }, { signal: never }),
  ]);
  assert.deepEqual(first, second);
  assert.deepEqual(seen.started, ['bootstrap', 'install bash curl']);
  assert.deepEqual(lines, ['bootstrapping', 'copying the base system', 'installing packages', 'packing']);
  await using root = await open(first.rootPath);
  const { buffer } = await root.read(Buffer.alloc(4), 0, 4, 1024);
  assert.equal(buffer.readUInt32LE(0), 0xe0f5e1e2, 'it is an EROFS file system');
  await assertNothingHalfMade();
});

test('a root that exists is found without running anything', { skip }, async () => {
  const recipe = { suite: 'bookworm', packages: ['curl'] };
  const built = await builderOver(fakePrograms().run).ensureRoot(recipe, { signal: never });
  const refuse: RunCommand = async (file) => assert.fail(`${file} ran`);
  assert.deepEqual(await builderOver(refuse).ensureRoot(recipe, { signal: never }), built);
});

test('roots share one bootstrap, and at most two are built at once', { skip }, async () => {
  const { seen, run } = fakePrograms();
  const builder = builderOver(run);
  const packages = ['aa', 'bb', 'cc', 'dd'];
  const roots = await Promise.all(
    packages.map((name) => builder.ensureRoot({ suite: 'bookworm', packages: [name] }, { signal: never })),
  );
  assert.equal(new Set(roots.map((root) => root.digest)).size, 4);
  assert.equal(seen.started.filter((line) => line === 'bootstrap').length, 1);
  assert.ok(seen.mostInstalling <= 2, String(seen.mostInstalling));
});

test('the same packages give the same digest in another data directory', { skip }, async () => {
  const recipe = { suite: 'bookworm', packages: ['curl'] };
  const first = await builderOver(fakePrograms().run).ensureRoot(recipe, { signal: never });
  await rm(data, { recursive: true });
  now += 1_000_000;
  const second = await builderOver(fakePrograms().run).ensureRoot(recipe, { signal: never });
  assert.equal(second.digest, first.digest);
});

test('a day later the base system is fetched anew, since the archive drops old packages', {
  skip,
}, async () => {
  const { seen, run } = fakePrograms();
  const builder = builderOver(run);
  await builder.ensureRoot({ suite: 'bookworm', packages: ['aa'] }, { signal: never });
  now += dayMs - 1;
  await builder.ensureRoot({ suite: 'bookworm', packages: ['bb'] }, { signal: never });
  now += 1;
  await builder.ensureRoot({ suite: 'bookworm', packages: ['cc'] }, { signal: never });
  assert.deepEqual(seen.started, ['bootstrap', 'install aa', 'install bb', 'bootstrap', 'install cc']);
});

test('a build that fails shows what failed, leaves nothing and can be tried again', { skip }, async () => {
  const { seen, run } = fakePrograms();
  const builder = builderOver(run);
  const recipe = { suite: 'bookworm', packages: ['nope'] };
  seen.onInstall = async () => {
    throw new GatewayError('build_failed', 'unshare failed', { output: 'E: Unable to locate package nope' });
  };
  await assert.rejects(builder.ensureRoot(recipe, { signal: never }), (error) => {
    assert.ok(error instanceof GatewayError);
    assert.equal(error.code, 'build_failed');
    assert.match(error.details.output ?? '', /Unable to locate package nope/);
    return true;
  });
  await assertNothingHalfMade();
  seen.onInstall = async () => {};
  await builder.ensureRoot(recipe, { signal: never });
});

test('a build is stopped when all who wanted it have left', { skip }, async () => {
  const { seen, run } = fakePrograms();
  const builder = builderOver(run);
  const leaver = new AbortController();
  const stopped = Promise.withResolvers<void>();
  seen.onInstall = (signal) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => {
        reject(signal.reason);
        stopped.resolve();
      });
      leaver.abort();
    });
  const building = builder.ensureRoot({ suite: 'bookworm', packages: ['curl'] }, { signal: leaver.signal });
  await assert.rejects(building, { code: 'cancelled' });
  await stopped.promise;
  // The next build runs after the stopped one let go of its directory.
  seen.onInstall = async () => {};
  await builder.ensureRoot({ suite: 'bookworm', packages: ['curl'] }, { signal: never });
  await assertNothingHalfMade();
});

test('without the agent there is no kernel to boot, and the error says how to build it', async () => {
  const building = builderOver(fakePrograms().run).ensureKernel({ signal: never });
  await assert.rejects(building, { code: 'host_not_ready', message: /make -C templates\/agent/ });
});
