import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { createStaging } from './staging.ts';

let parent: string;
beforeEach(async () => {
  parent = await mkdtemp(join(tmpdir(), 'staging-'));
});
afterEach(() => rm(parent, { recursive: true }));

test('a staging directory goes when it is disposed, with all that is in it', async () => {
  {
    await using directory = await createStaging(join(parent, 'staging')).create();
    await writeFile(join(directory.path, 'half'), 'made');
    assert.deepEqual(await readdir(join(parent, 'staging')), [directory.path.split('/').at(-1)]);
  }
  assert.deepEqual(await readdir(join(parent, 'staging')), []);
});

test('what a dead process left is cleared, what a live one owns is kept', async () => {
  const staging = createStaging(parent);
  await using own = await staging.create();
  // Process 1 lives, but did not start at tick 1 after boot under this test's eyes: the pid was used again.
  await mkdir(join(parent, '1-999999999999-aaaaaaaa'));
  await mkdir(join(parent, '4194999-1-bbbbbbbb'));
  await mkdir(join(parent, 'not-ours'));
  await staging.clearAbandoned();
  assert.deepEqual((await readdir(parent)).sort(), [own.path.split('/').at(-1), 'not-ours'].sort());
});

test('clearing where nothing was ever staged is fine', async () => {
  await createStaging(join(parent, 'absent')).clearAbandoned();
});
