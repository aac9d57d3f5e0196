import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { createOverlay, overlayHeader } from './qcow2-overlay.ts';

const run = promisify(execFile);

describe('a qcow2 overlay written by us', () => {
  let directory = '';
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate, overlay-'));
  });
  after(() => rm(directory, { recursive: true }));

  for (const [format, virtualMiB] of [
    ['raw', 1],
    ['raw', 1024],
    ['qcow2', 1023],
    ['qcow2', 4 * 2 ** 20],
  ] as const) {
    test(`over ${format} with ${virtualMiB} MiB is sound in the eyes of qemu-img`, async () => {
      const backingPath = join(directory, `backing.${format}.${virtualMiB}`);
      const path = join(directory, `overlay.${format}.${virtualMiB}`);
      await run('qemu-img', ['create', '-q', '-f', format, backingPath, `${virtualMiB}M`]);
      await createOverlay({ path, backingPath, backingFormat: format, virtualMiB });
      const checked = JSON.parse((await run('qemu-img', ['check', '--output=json', path])).stdout);
      assert.equal(checked['check-errors'], 0);
      assert.equal(checked.corruptions ?? 0, 0);
      assert.equal(checked.leaks ?? 0, 0);
      const info = JSON.parse((await run('qemu-img', ['info', '--output=json', path])).stdout);
      assert.equal(info['virtual-size'], virtualMiB * 2 ** 20);
      assert.equal(info['full-backing-filename'], backingPath);
      assert.equal(info['backing-filename-format'], format);
      assert.equal((await stat(path)).mode & 0o777, 0o600);
    });
  }

  test('without a backing path is sound too, and names nothing below it', async () => {
    const path = join(directory, 'alone');
    await createOverlay({ path, virtualMiB: 64 });
    await run('qemu-img', ['check', '-q', path]);
    const info = JSON.parse((await run('qemu-img', ['info', '--output=json', path])).stdout);
    assert.equal(info['virtual-size'], 64 * 2 ** 20);
    assert.equal(info['backing-filename'], undefined);
  });

  test('shows its backing file and takes writes of its own', async () => {
    const backingPath = join(directory, 'base.raw');
    const path = join(directory, 'written');
    const base = Buffer.alloc(2 ** 20, 'b');
    await writeFile(backingPath, base);
    await createOverlay({ path, backingPath, backingFormat: 'raw', virtualMiB: 1 });
    await run('qemu-io', ['-f', 'qcow2', '-c', 'write -P 0x6f 70000 1000', path]);
    await run('qemu-img', ['check', '-q', path]);
    const merged = join(directory, 'merged');
    await run('qemu-img', ['convert', '-O', 'raw', path, merged]);
    const expected = Buffer.from(base);
    expected.fill('o', 70_000, 71_000);
    assert.deepEqual(await readFile(merged), expected);
    assert.deepEqual(await readFile(backingPath), base);
  });

  test('never replaces a file', async () => {
    const path = join(directory, 'taken');
    await writeFile(path, 'mine');
    await assert.rejects(
      createOverlay({ path, backingPath: '/nothing', backingFormat: 'raw', virtualMiB: 1 }),
      {
        code: 'EEXIST',
      },
    );
    assert.equal(await readFile(path, 'utf8'), 'mine');
  });
});

test('an overlay header with an impossible size or backing name is refused', () => {
  const options = { backingPath: '/b', backingFormat: 'raw', virtualMiB: 16 } as const;
  for (const bad of [{ virtualMiB: 0 }, { virtualMiB: 4 * 2 ** 20 + 1 }, { backingPath: 'x'.repeat(1024) }])
    assert.throws(() => overlayHeader({ ...options, ...bad }), { code: 'invalid_request' });
});
