import assert from 'node:assert/strict';
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { blockRuns, digestFile } from './image-digest.ts';
import { parseExtents } from './image-digester.ts';

const kib = 1024;
const block = 64 * kib;

describe('a digest of a sparse file', () => {
  let directory = '';
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-digest-'));
  });
  after(() => rm(directory, { recursive: true }));

  async function sparse(name: string, bytes: number, parts: [offset: number, text: string][]) {
    const path = join(directory, name);
    await using file = await open(path, 'w');
    await file.truncate(bytes);
    for (const [offset, text] of parts) await file.write(text, offset);
    return path;
  }

  test('is the same whether zeroes are holes or written', async () => {
    const holes = await sparse('holes', 5 * block + 10, [[2 * block + 5, 'hello']]);
    const content = Buffer.alloc(5 * block + 10);
    content.write('hello', 2 * block + 5);
    const solid = join(directory, 'solid');
    await writeFile(solid, content);
    assert.equal(digestFile(holes, [[2 * block, 4 * kib]]), digestFile(solid, null));
  });

  test('changes with one byte, with its place, and with the size', async () => {
    const digests = [
      await sparse('a', 4 * block, [[0, 'x']]),
      await sparse('b', 4 * block, [[0, 'y']]),
      await sparse('c', 4 * block, [[block, 'x']]),
      await sparse('d', 4 * block + 1, [[0, 'x']]),
    ].map((path) => digestFile(path, null));
    assert.equal(new Set(digests).size, 4);
  });

  test('of an empty file exists', async () => {
    assert.match(digestFile(await sparse('empty', 0, []), []), /^sha256:[0-9a-f]{64}$/);
  });
});

test('block runs cover each block of the extents once, in order', () => {
  const runs = blockRuns(
    [
      [4 * kib, 8 * kib],
      [20 * kib, 4 * kib],
      [block * 2 - 1, 2],
      [block * 10, block * 70],
    ],
    block * 60,
  );
  const blocks = runs.flatMap(([first, count]) => Array.from({ length: count }, (_, index) => first + index));
  assert.deepEqual(blocks, [0, 1, 2, ...Array.from({ length: 50 }, (_, index) => 10 + index)]);
});

test('a malformed list of extents is refused', () => {
  assert.deepEqual(parseExtents('0 4096\n8192 1\n'), [
    [0, 4096],
    [8192, 1],
  ]);
  for (const text of ['0', '0 1 2', '-1 5', '1 2\nx', '0 1e3'])
    assert.throws(() => parseExtents(text), /malformed/);
});
