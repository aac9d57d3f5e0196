import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { link, mkdtemp, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';

const run = promisify(execFile);

describe('native tools, built with warnings as errors and the sanitizer', () => {
  let directory = '';
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-native-'));
    await run('make', ['-C', import.meta.dirname, '-s', 'check-tools', `OUT=${directory}`, 'SANITIZE=1']);
  });
  after(() => rm(directory, { recursive: true }));

  const withShim = (memoryPath: string, args: string[], more: Record<string, string> = {}) =>
    run(join(directory, 'map-private-check'), args, {
      env: {
        LD_PRELOAD: join(directory, 'map-private.so'),
        SNAPGATE_MEMORY_NAME: '/dev/null/snapgate-memory',
        SNAPGATE_MEMORY_FILE: memoryPath,
        SNAPGATE_FILE_BYTES: '65536',
        ...more,
      },
    });

  test('the mapping shim lets nothing through to the memory file, and leaves other files alone', async () => {
    const memoryPath = join(directory, 'memory, v1');
    const linkPath = join(directory, 'link');
    await writeFile(memoryPath, Buffer.alloc(64 * 1024, 'm'));
    await link(memoryPath, linkPath);
    const content = await readFile(memoryPath);
    const { mtimeMs, ctimeMs } = await stat(memoryPath);
    await withShim(memoryPath, [linkPath, join(directory, 'other')]);
    assert.deepEqual(await readFile(memoryPath), content);
    const later = await stat(memoryPath);
    assert.deepEqual([later.mtimeMs, later.ctimeMs], [mtimeMs, ctimeMs]);
  });

  test('the mapping shim stops a process whose memory file it can not find, or whose limit it can not read', async () => {
    await assert.rejects(withShim(join(directory, 'missing'), ['a', 'b']), {
      code: 71,
      stderr: /map-private: .*missing: No such file/,
    });
    const memoryPath = join(directory, 'any');
    await writeFile(memoryPath, '');
    await assert.rejects(withShim(memoryPath, ['a', 'b'], { SNAPGATE_FILE_BYTES: '12x' }), { code: 71 });
    await assert.rejects(withShim(directory, ['a', 'b']), { code: 71 });
  });

  test('data extents leave out holes, at the end too', async () => {
    const path = join(directory, 'sparse');
    const tool = join(directory, 'data-extents');
    await using file = await open(path, 'w');
    await file.truncate(8 * 2 ** 20);
    assert.equal((await run(tool, [path])).stdout, '');
    await file.write(Buffer.alloc(4096, 1), 0, 4096, 2 ** 20);
    const { stdout } = await run(tool, [path]);
    const [offset, length, ...rest] = stdout.trim().split(/\s/).map(Number);
    assert.equal(offset, 2 ** 20);
    assert.ok(length! >= 4096 && length! < 2 ** 20);
    assert.deepEqual(rest, []);
    await assert.rejects(run(tool, [join(directory, 'missing')]), { code: 2, stderr: /No such file/ });
  });
});
