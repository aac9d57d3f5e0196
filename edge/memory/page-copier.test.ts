import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { createPageCopier, type PageCopier } from './page-copier.ts';
import { findRamMapping } from './ram-mapping.ts';

const run = promisify(execFile);
const pages = 96;
const pageBytes = 4096;

describe('the page copier', () => {
  let directory = '';
  let copier: PageCopier;
  let imagePath = '';
  let count = 0;

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-pages-'));
    const native = join(import.meta.dirname, '../native');
    await run('make', ['-C', native, 'check-tools', `OUT=${directory}/tools`, 'SANITIZE=1']);
    copier = createPageCopier({ toolPath: join(directory, 'tools/page-copy') });
    imagePath = join(directory, 'memory image');
    const image = Buffer.alloc(pages * pageBytes);
    for (let page = 0; page < pages; page += 2) image.fill(page, page * pageBytes, (page + 1) * pageBytes);
    await writeFile(imagePath, image);
  });
  after(async () => {
    await copier[Symbol.asyncDispose]();
    await rm(directory, { recursive: true });
  });

  /** A process that has the image mapped privately and wrote these pages. */
  async function mapped(dirty: readonly number[], value = 7, path = imagePath) {
    const child = spawn(
      join(directory, 'tools/page-copy-check'),
      [path, String(value), ...dirty.map(String)],
      {
        stdio: ['pipe', 'pipe', 'inherit'],
      },
    );
    const [line] = (await once(child.stdout, 'data')) as [Buffer];
    const mapping = await findRamMapping(child.pid ?? 0, path);
    assert.equal(mapping.start, Number(line.toString()));
    return {
      pid: child.pid ?? 0,
      mapping,
      async [Symbol.asyncDispose]() {
        child.stdin.end();
        await once(child, 'exit');
      },
    };
  }
  const freshPath = () => join(directory, `delta-${count++}`);
  /** Runs of pages, as they stand in the index. */
  const runsOf = (delta: Buffer) =>
    Array.from({ length: Number(delta.readBigUInt64LE(24)) }, (_, index) => [
      Number(delta.readBigUInt64LE(64 + index * 16)),
      Number(delta.readBigUInt64LE(72 + index * 16)),
    ]);

  test('takes exactly the pages that were written, and another process has the same memory afterwards', async () => {
    const dirtySets = fc.uniqueArray(fc.nat({ max: pages - 1 }), { maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(dirtySets, async (dirty) => {
        await using source = await mapped(dirty);
        await using target = await mapped([]);
        const first = freshPath();
        const second = freshPath();
        const found = await copier.capture(source.pid, source.mapping, first).written;
        assert.equal(found.pages, dirty.length);
        const delta = await readFile(first);
        const listed = runsOf(delta).flatMap(([from = 0, length = 0]) =>
          Array.from({ length }, (_, index) => from + index),
        );
        assert.deepEqual(
          listed,
          [...dirty].sort((a, b) => a - b),
        );
        await copier.apply(target.pid, target.mapping, first);
        await copier.capture(target.pid, target.mapping, second).written;
        assert.deepEqual(await readFile(second), delta);
      }),
      { numRuns: 25 },
    );
  });

  test('finds the same pages where the kernel has no PAGEMAP_SCAN, however many', async () => {
    const largePath = join(directory, 'large image');
    await writeFile(largePath, '');
    await truncate(largePath, 64 * 2 ** 20);
    for (const dirty of [[0, 1, 2, 50, 95], Array.from({ length: 8000 }, (_, index) => 2 * index)]) {
      await using source = await mapped(dirty, 7, largePath);
      const byScan = freshPath();
      const byReading = freshPath();
      assert.equal((await copier.capture(source.pid, source.mapping, byScan).written).pages, dirty.length);
      const child = spawn(join(directory, 'tools/page-copy'), [], {
        env: { PAGE_COPY_BY_READING: '1' },
        stdio: ['pipe', 'ignore', 'inherit'],
      });
      child.stdin.end(`capture ${source.pid} ${source.mapping.start} ${source.mapping.bytes} ${byReading}\n`);
      await once(child, 'exit');
      assert.deepEqual(await readFile(byReading), await readFile(byScan));
    }
  });

  test('refuses a delta with any damage in its header or index, and writes no page of it', async () => {
    await using source = await mapped([3, 4, 5, 20, 60]);
    const path = freshPath();
    await copier.capture(source.pid, source.mapping, path).written;
    const sound = await readFile(path);
    const positions = fc.record({ at: fc.nat({ max: 40 + 3 * 16 }), flip: fc.integer({ min: 1, max: 255 }) });
    await fc.assert(
      fc.asyncProperty(positions, async ({ at: position, flip }) => {
        // Reserved bytes mean nothing yet.
        const at = position >= 40 ? position - 40 + 64 : position;
        if (at >= 64 + 3 * 16) return;
        const damaged = Buffer.from(sound);
        damaged[at] = (damaged[at] ?? 0) ^ flip;
        await using target = await mapped([]);
        const other = freshPath();
        await writeFile(other, damaged);
        const outcome = await copier.apply(target.pid, target.mapping, other).then(
          () => 'applied',
          (error: { code: string }) => error.code,
        );
        // A first page that moved within its gap can't be told without the checksum; it stays inside the memory.
        const isMovedRun = at >= 64 && (at - 64) % 16 < 8;
        assert.ok(
          outcome === 'snapshot_corrupt' || (isMovedRun && outcome === 'applied'),
          `${at}: ${outcome}`,
        );
        if (outcome === 'applied') return;
        const after = await copier.capture(target.pid, target.mapping, freshPath()).written;
        assert.equal(after.pages, 0);
      }),
      { numRuns: 60 },
    );
    await using target = await mapped([]);
    for (const bytes of [0, 63, 64, sound.length - 1, sound.length + 1]) {
      const cut = freshPath();
      await writeFile(cut, Buffer.concat([sound, Buffer.alloc(1)]).subarray(0, bytes));
      await assert.rejects(copier.apply(target.pid, target.mapping, cut), { code: 'snapshot_corrupt' });
    }
  });

  test('a full disk is told apart and leaves no file', async () => {
    await using source = await mapped([1, 2, 3]);
    await assert.rejects(copier.capture(source.pid, source.mapping, '/dev/full').written, {
      code: 'vmm_failed',
    });
    const path = join(directory, 'limited');
    const child = spawn('/usr/bin/prlimit', ['--fsize=4096', join(directory, 'tools/page-copy')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    child.stdin.write(`capture ${source.pid} ${source.mapping.start} ${source.mapping.bytes} ${path}\n`);
    let said = '';
    child.stdout.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    child.stdin.end();
    await once(child, 'close');
    assert.match(said, /error write the delta: File too large/);
    assert.ok(!(await readdir(directory)).includes('limited'));
  });

  test('goes on after its helper was killed, and fails what was under way', async () => {
    await using source = await mapped([9]);
    const lone = createPageCopier({ toolPath: join(directory, 'tools/page-copy'), helpers: 1 });
    await lone.capture(source.pid, source.mapping, freshPath()).written;
    await lone[Symbol.asyncDispose]();
    const path = freshPath();
    await lone.capture(source.pid, source.mapping, path).written;
    assert.ok((await stat(path)).size >= 2 * pageBytes);
    await lone[Symbol.asyncDispose]();
    const missing = createPageCopier({ toolPath: join(directory, 'none') });
    await assert.rejects(missing.capture(source.pid, source.mapping, freshPath()).copied, {
      code: 'vmm_failed',
    });
  });

  test('a mapping is refused that is shared, or of another file', async () => {
    await using file = await open(join(directory, 'other'), 'w');
    await file.truncate(8192);
    await assert.rejects(findRamMapping(process.pid, join(directory, 'other')), { code: 'vmm_failed' });
    await assert.rejects(findRamMapping(process.pid, join(directory, 'missing')), { code: 'vmm_failed' });
  });
});
