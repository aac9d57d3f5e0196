import assert from 'node:assert/strict';
import { link, mkdir, mkdtemp, open, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { systemClock } from '../../sdk/index.ts';
import { createDiskUse } from './disk-use.ts';

test('allocated bytes count, holes, second names and what links point to do not', async (context) => {
  const directory = await mkdtemp(join(tmpdir(), 'sg-disk-'));
  context.after(() => rm(directory, { recursive: true }));
  const [one, two] = [join(directory, 'one'), join(directory, 'two')];
  await mkdir(join(one, 'deep'), { recursive: true });
  await mkdir(two);
  await writeFile(join(one, 'deep/file'), Buffer.alloc(1024 * 1024, 1));
  await link(join(one, 'deep/file'), join(two, 'again'));
  await symlink('/usr', join(two, 'elsewhere'));
  await using sparse = await open(join(two, 'sparse'), 'w');
  await sparse.truncate(1024 ** 3);
  let now = 0;
  const clock = { ...systemClock, monotonic: () => now };
  const diskUse = createDiskUse({ clock }, { directories: [one, two, join(directory, 'missing')] });
  const first = await diskUse();
  assert.ok(first !== null && first.freeBytes > 0);
  assert.ok(first.usedBytes >= 1024 ** 2 && first.usedBytes < 1.2 * 1024 ** 2, `${first.usedBytes}`);

  await writeFile(join(two, 'more'), Buffer.alloc(1024 * 1024, 2));
  assert.equal(await diskUse(), first, 'asked again at once, it does not walk again');
  now += 1_001;
  assert.ok(((await diskUse())?.usedBytes ?? 0) >= 2 * 1024 ** 2);
});
