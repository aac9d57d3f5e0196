import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { link, mkdtemp, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
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

  /** Runs the check as the edge runs a VMM: the memory file is descriptor 3. */
  async function withShim(memoryPath: string, args: string[], more: NodeJS.ProcessEnv = {}) {
    await using memory = await open(memoryPath, 'r');
    const child = spawn(join(directory, 'map-private-check'), args, {
      stdio: ['ignore', 'ignore', 'pipe', memory.fd],
      env: {
        LD_PRELOAD: join(directory, 'map-private.so'),
        SNAPGATE_MEMORY_NAME: '/dev/null/snapgate-memory',
        SNAPGATE_MEMORY_FD: '3',
        SNAPGATE_KVM_FD: '3',
        SNAPGATE_FILE_BYTES: '65536',
        ...more,
      },
    });
    const [[code], stderr] = await Promise.all([once(child, 'close'), text(child.stderr as Readable)]);
    return { code, stderr };
  }

  test('the mapping shim lets nothing through to the memory file, and leaves other files alone', async () => {
    const memoryPath = join(directory, 'memory, v1');
    const linkPath = join(directory, 'link');
    await writeFile(memoryPath, Buffer.alloc(64 * 1024, 'm'));
    await link(memoryPath, linkPath);
    const content = await readFile(memoryPath);
    const { mtimeMs, ctimeMs } = await stat(memoryPath);
    const { code, stderr } = await withShim(memoryPath, [linkPath, join(directory, 'other')]);
    assert.equal(code, 0, stderr);
    assert.deepEqual(await readFile(memoryPath), content);
    const later = await stat(memoryPath);
    assert.deepEqual([later.mtimeMs, later.ctimeMs], [mtimeMs, ctimeMs]);
  });

  test('the mapping shim stops a process whose memory file is none, or whose settings it can not read', async () => {
    const memoryPath = join(directory, 'any');
    await writeFile(memoryPath, '');
    for (const more of [
      { SNAPGATE_MEMORY_FD: '77' },
      { SNAPGATE_MEMORY_FD: 'x' },
      { SNAPGATE_FILE_BYTES: '12x' },
    ]) {
      const { code, stderr } = await withShim(memoryPath, ['a', 'b'], more);
      assert.equal(code, 71);
      assert.match(stderr, /^snapgate map-private: /);
    }
    assert.equal((await withShim(directory, ['a', 'b'])).code, 71);
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
