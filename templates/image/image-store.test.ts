import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { createImageStore, type ImageContents } from './image-store.ts';
import { recipeKey } from './recipe.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'images-'));
});
afterEach(() => rm(root, { recursive: true }));

const keyOf = (name: string): string => recipeKey('root', { name });
const fillWith =
  (content: string) =>
  async (path: string): Promise<ImageContents> => {
    await writeFile(join(path, 'root.erofs'), content);
    await writeFile(join(path, 'leftover'), 'not part of the image');
    return { files: ['root.erofs'], facts: { suite: 'bookworm' } };
  };

test('an image is found by its recipe after it was built, also by another store', async () => {
  const built = await createImageStore(root).build(keyOf('a'), 'root', fillWith('content'));
  const found = await createImageStore(root).find(keyOf('a'));
  assert.deepEqual(found, built);
  assert.equal(await readFile(join(built.path, 'root.erofs'), 'utf8'), 'content');
  assert.deepEqual((await readdir(built.path)).sort(), ['manifest.json', 'root.erofs']);
  assert.deepEqual(await readdir(join(root, 'staging')), []);
});

test('the digest follows from the content alone', async () => {
  const store = createImageStore(root);
  const first = await store.build(keyOf('a'), 'root', fillWith('same'));
  const second = await store.build(keyOf('b'), 'root', fillWith('same'));
  const third = await store.build(keyOf('c'), 'root', fillWith('other'));
  assert.equal(second.path, first.path);
  assert.notEqual(third.path, first.path);
});

test('a build that fails leaves nothing and the recipe stays unbuilt', async () => {
  const store = createImageStore(root);
  const failing = store.build(keyOf('a'), 'root', async (path) => {
    await writeFile(join(path, 'root.erofs'), 'half');
    throw new Error('broken');
  });
  await assert.rejects(failing, /broken/);
  assert.equal(await store.find(keyOf('a')), null);
  assert.deepEqual(await readdir(root), ['staging']);
  assert.deepEqual(await readdir(join(root, 'staging')), []);
});

test('an image that was cut short is not found, and building it again repairs it in place', async () => {
  const store = createImageStore(root);
  const { path } = await store.build(keyOf('a'), 'root', fillWith('content'));
  await truncate(join(path, 'root.erofs'), 3);
  assert.equal(await store.find(keyOf('a')), null);
  const repaired = await store.build(keyOf('a'), 'root', fillWith('content'));
  assert.equal(repaired.path, path);
  assert.equal(await readFile(join(path, 'root.erofs'), 'utf8'), 'content');
  assert.deepEqual(await store.find(keyOf('a')), repaired);
});

test('a manifest or pointer that says something else counts as not built', async () => {
  const store = createImageStore(root);
  const { path, manifest } = await store.build(keyOf('a'), 'root', fillWith('content'));
  for (const damage of ['', '{', '{}', JSON.stringify({ ...manifest, digest: '0'.repeat(64) })]) {
    await writeFile(join(path, 'manifest.json'), damage);
    assert.equal(await store.find(keyOf('a')), null, damage);
  }
  await writeFile(join(root, 'recipes', keyOf('a')), '../../../etc\n');
  assert.equal(await store.find(keyOf('a')), null);
});

test('two builds of the same content at the same time both succeed', async () => {
  const stores = [createImageStore(root), createImageStore(root)];
  const built = await Promise.all(
    stores.map((store) => store.build(keyOf('a'), 'root', fillWith('content'))),
  );
  assert.equal(built[0]!.path, built[1]!.path);
  assert.notEqual(await stores[0]!.find(keyOf('a')), null);
  assert.deepEqual(await readdir(join(root, 'staging')), []);
});
