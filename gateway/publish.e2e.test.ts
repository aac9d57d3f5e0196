import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, open, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isGatewayError } from '../sdk/index.ts';
import {
  type DrillNode,
  drillFolder,
  leaksOf,
  makeDataDirectory,
  publishDrill,
  startNode,
} from './testing/drill-node.ts';

const run = promisify(execFile);
let dataDirectory: string;
let node: DrillNode;
let first: Awaited<ReturnType<typeof publishDrill>>;

const marked = (marker: string) => ({ env: { MARKER: marker } });

async function markerOf(template = 'drill'): Promise<string> {
  const { response } = await node.client.invoke(template);
  return ((await response.json()) as { marker: string }).marker;
}

/** The drill with another program. */
async function folderWith(program: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'sg-drill-'));
  await cp(drillFolder, folder, { recursive: true });
  await writeFile(join(folder, 'app/main.py'), program);
  return folder;
}

before(async () => {
  dataDirectory = await makeDataDirectory();
  node = await startNode(dataDirectory);
  first = await publishDrill(node.client, marked('one'));
});
after(async () => {
  await node.stop();
  assert.deepEqual(await leaksOf(dataDirectory), []);
  await rm(dataDirectory, { recursive: true, force: true });
});

test('publishing the same folder again builds nothing and keeps the version', async () => {
  const again = await publishDrill(node.client, marked('one'));
  assert.equal(again.unchanged, true);
  assert.equal(again.version, first.version);
  assert.equal(again.digest, first.digest);
});

test('publishing under load fails no request, and afterwards only the new version answers', async () => {
  const failures: string[] = [];
  const versions: string[] = [];
  let isOver = false;
  const calls: Promise<void>[] = [];
  const call = async () => {
    try {
      const { response, start } = await node.client.invoke('drill');
      const { marker } = (await response.json()) as { marker: string };
      if (response.status !== 200) failures.push(`status ${response.status}`);
      const expected = start?.digest === first.digest ? 'one' : 'two';
      if (marker !== expected) failures.push(`${start?.version} answered as ${marker}`);
      versions.push(start?.version ?? '');
    } catch (error) {
      failures.push(String(error));
    }
  };
  const load = (async () => {
    while (!isOver) {
      calls.push(call());
      await sleep(50);
    }
  })();
  const second = await publishDrill(node.client, marked('two'));
  await sleep(500);
  isOver = true;
  await load;
  await Promise.all(calls);
  assert.deepEqual(failures, []);
  assert.equal(second.version, 'v2');
  assert.ok(versions.includes('v1') && versions.includes('v2'), 'requests met both versions');
  assert.equal(versions.at(-1), 'v2');
  for (let count = 0; count < 10; count++) assert.equal(await markerOf(), 'two');
});

test('an old version answers when it is named, and a weighted alias divides its calls', async () => {
  assert.equal(await markerOf('drill@v1'), 'one');
  await node.client.setAlias('drill', 'canary', [
    { version: 'v1', weight: 1 },
    { version: 'v2', weight: 1 },
  ]);
  const markers = new Set<string>();
  for (let count = 0; count < 40 && markers.size < 2; count++) markers.add(await markerOf('drill@canary'));
  assert.deepEqual([...markers].sort(), ['one', 'two']);
});

const broken: {
  readonly name: string;
  readonly program?: string;
  readonly changes?: Record<string, unknown>;
  readonly says: RegExp;
}[] = [
  { name: 'a syntax error', program: 'def broken(:\n', says: /SyntaxError/ },
  {
    name: 'a crash at start',
    program: 'import sys\nprint("no database", file=sys.stderr)\nsys.exit(3)\n',
    says: /no database/,
  },
  {
    name: 'a service that never gets ready',
    program: 'import time\nprint("still loading", flush=True)\ntime.sleep(3600)\n',
    changes: {
      start: {
        command: ['python3', '/app/main.py'],
        user: 'root',
        port: 8000,
        ready: { http: '/healthz', timeoutMs: 3000 },
      },
    },
    says: /still loading/,
  },
  { name: 'a build step that fails', changes: { run: ['echo compiling; exit 9'] }, says: /compiling/ },
  {
    name: 'a hook that fails after the restore',
    changes: { hooks: { afterRestore: { http: '/crash' } } },
    says: /hook \/crash got no answer/,
  },
];
for (const { name, program, changes, says } of broken) {
  test(`${name} publishes nothing, shows what the guest said, and leaves what serves alone`, async () => {
    const folder = program === undefined ? drillFolder : await folderWith(program);
    try {
      await assert.rejects(
        publishDrill(node.client, { ...marked('broken'), ...changes }, folder),
        (error) => {
          assert.ok(isGatewayError(error, 'build_failed', 'restore_failed'), String(error));
          assert.match(`${error.message}\n${error.details.output}`, says);
          return true;
        },
      );
    } finally {
      if (folder !== drillFolder) await rm(folder, { recursive: true });
    }
    assert.equal(await markerOf(), 'two');
    assert.deepEqual((await node.client.template('drill')).history.map(({ version }) => version).sort(), [
      'v1',
      'v2',
    ]);
    assert.deepEqual(
      (await readdir(join(dataDirectory, 'versions'))).filter((entry) => entry.startsWith('.')),
      [],
    );
  });
}

test('a damaged snapshot is refused by its checksum and rebuilt, and its version answers again', async () => {
  await node.stop();
  const directory = join(dataDirectory, 'versions', first.digest.slice('sha256:'.length));
  const damaged = await open(join(directory, 'memory.img'), 'r+');
  const byte = Buffer.alloc(1);
  await damaged.read(byte, 0, 1, 4096 * 300);
  byte[0] = byte[0]! ^ 0xff;
  await damaged.write(byte, 0, 1, 4096 * 300);
  await damaged.close();
  const manifest = await readFile(join(directory, 'manifest.json'), 'utf8');

  node = await startNode(dataDirectory);
  const deadline = Date.now() + 120_000;
  const reasons = new Set<string>();
  for (;;) {
    try {
      assert.equal(await markerOf('drill@v1'), 'one');
      break;
    } catch (error) {
      if (!isGatewayError(error, 'version_unavailable') || Date.now() > deadline) throw error;
      reasons.add(error.message);
      await sleep(250);
    }
  }
  assert.match([...reasons].join('\n'), /checksum of memory\.img is wrong/);
  assert.notEqual(
    await readFile(join(directory, 'manifest.json'), 'utf8'),
    manifest,
    'the files were made anew',
  );
  assert.equal(await markerOf(), 'two');
});

test('a full disk refuses the publish with a clear error and leaves nothing half-made', async () => {
  const small = await mkdtemp(join(tmpdir(), 'sg-'));
  await run('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', small]);
  try {
    for (const name of ['images', 'cache'])
      await symlink(join(import.meta.dirname, '../.snapgate', name), join(small, name));
    await mkdir(join(small, 'versions'));
    await using tight = await startNode(small);
    await assert.rejects(publishDrill(tight.client, marked('one')), (error) =>
      isGatewayError(error, 'disk_full'),
    );
    assert.deepEqual(await readdir(join(small, 'versions')), []);
    assert.deepEqual(await tight.client.templates(), []);
  } finally {
    await run('umount', [small]);
    await rm(small, { recursive: true, force: true });
  }
});
