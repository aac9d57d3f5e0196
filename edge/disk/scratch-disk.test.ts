import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { createScratchDisks } from './scratch-disk.ts';

const run = promisify(execFile);
const signal = new AbortController().signal;

describe('scratch disks', () => {
  let directory = '';
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-scratch-'));
  });
  after(() => rm(directory, { recursive: true }));

  test('of one size are made once, stand alone, are small, and hold a clean ext4', async () => {
    const cache = join(directory, 'cache');
    const disks = createScratchDisks(cache);
    const paths = ['a', 'b', 'c'].map((name) => join(directory, name));
    await Promise.all(paths.map((path) => disks.create(path, 512, { signal })));
    assert.deepEqual(await readdir(cache), ['ext4-1-512.qcow2']);
    const [first, second] = await Promise.all(paths.map((path) => readFile(path)));
    assert.deepEqual(first, second);
    assert.ok((await stat(paths[0]!)).size < 4 * 2 ** 20);
    assert.equal((await stat(paths[0]!)).mode & 0o777, 0o600);
    const info = JSON.parse((await run('qemu-img', ['info', '--output=json', paths[0]!])).stdout);
    assert.equal(info['virtual-size'], 512 * 2 ** 20);
    assert.equal(info['backing-filename'], undefined);
    const raw = join(directory, 'raw');
    await run('qemu-img', ['convert', '-O', 'raw', paths[0]!, raw]);
    await run('/usr/sbin/e2fsck', ['-f', '-n', raw]);
  });

  test('never replace a file', async () => {
    const disks = createScratchDisks(join(directory, 'cache'));
    const path = join(directory, 'taken');
    await disks.create(path, 16, { signal });
    const before = await stat(path);
    await assert.rejects(disks.create(path, 16, { signal }), { code: 'internal' });
    assert.equal((await stat(path)).ino, before.ino);
  });

  test('of an impossible size are refused', async () => {
    const disks = createScratchDisks(join(directory, 'cache'));
    for (const size of [0, 7, 1.5, 2 ** 40])
      await assert.rejects(disks.create(join(directory, 'odd'), size, { signal }), {
        code: 'invalid_request',
      });
  });
});
