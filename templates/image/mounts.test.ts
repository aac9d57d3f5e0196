import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { runCommand } from './command.ts';
import { buildEnvironment } from './debian.ts';
import { parseMountPoints, readMountPoints } from './mounts.ts';
import { createStaging } from './staging.ts';

test('mount points are read whatever is in their names', () => {
  const text = [
    '22 27 0:21 / /proc rw,relatime - proc proc rw',
    '27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw',
    '42 27 0:39 / /srv/with\\040blank\\134and\\011tab rw,relatime - proc p rw',
    '',
  ].join('\n');
  assert.deepEqual(parseMountPoints(text), ['/proc', '/', '/srv/with blank\\and\ttab']);
});

test('this process sees /proc', async () => {
  assert.ok((await readMountPoints()).includes('/proc'));
});

test('removing a staging directory unmounts what is in it and leaves what was mounted alone', {
  skip: process.getuid?.() !== 0,
}, async () => {
  const directory = await mkdtemp(join(tmpdir(), 'mounts with blank-'));
  const outside = join(directory, 'outside');
  try {
    await mkdir(outside);
    await writeFile(join(outside, 'precious'), '');
    {
      await using staged = await createStaging(join(directory, 'staging')).create();
      const place = join(staged.path, 'tree');
      await mkdir(place);
      const options = { signal: AbortSignal.timeout(10_000), env: buildEnvironment };
      await runCommand('mount', ['--bind', outside, place], options);
      await runCommand('mount', ['--bind', outside, place], options);
    }
    assert.ok(existsSync(join(outside, 'precious')));
    assert.ok(!(await readMountPoints()).some((path) => path.startsWith(directory)));
  } finally {
    await rm(directory, { recursive: true });
  }
});
