import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, open, readdir, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import type { SandboxId } from '../../sdk/index.ts';
import { shareImages } from './testing/data-directory.ts';
import { anyTime, openNode } from './testing/sandbox-node.ts';

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;
/** Enough for records, far too little for a snapshot. */
const leftBytes = 400 * 1024;

test('a full disk keeps a sandbox running that was to be paused, forked or captured', {
  skip: isRoot ? false : 'mounting a small filesystem needs root',
}, async () => {
  const directory = await mkdtemp(join(tmpdir(), 'sg-'));
  await run('mount', ['-t', 'tmpfs', '-o', 'size=700m,mode=0700', 'snapgate-test', directory]);
  await using stack = new AsyncDisposableStack();
  stack.defer(async () => {
    await run('umount', ['-l', directory]);
    await rm(directory, { recursive: true });
  });
  await shareImages(directory);
  const node = await openNode(directory, { config: { forkBlanks: 0 }, isAlone: true });
  stack.defer(() => node.edge.dispose());
  const { sandboxes } = node.edge;
  const signal = { signal: anyTime() };
  const id = (await node.create()).id as SandboxId;
  await node.ask(id, '/fill?4');
  const { blob } = await node.ask(id, '/count');

  const ballast = join(directory, 'ballast');
  {
    const { bavail, bsize } = await statfs(directory);
    await using file = await open(ballast, 'w');
    const chunk = Buffer.alloc(2 ** 18, 1);
    for (let left = bavail * bsize - leftBytes; left > 0; left -= chunk.length)
      await file.write(chunk, 0, Math.min(left, chunk.length));
  }
  await assert.rejects(sandboxes.pause(id, signal), { code: 'disk_full' });
  await assert.rejects(sandboxes.snapshot(id, { isPinned: false }, signal), { code: 'disk_full' });
  await assert.rejects(sandboxes.fork(id, { count: 1 }, signal), { code: 'disk_full' });
  assert.equal((await sandboxes.get(id)).state, 'running');
  assert.deepEqual(await readdir(join(directory, 'snapshots')), [], 'nothing half-done is kept');
  assert.equal((await node.ask(id)).counter, 1);

  await rm(ballast);
  await sandboxes.pause(id, signal);
  await sandboxes.resume(id, signal);
  const said = await node.ask(id, '/count');
  assert.deepEqual([said.counter, said.blob], [2, blob]);
  await sandboxes.kill(id);
});
