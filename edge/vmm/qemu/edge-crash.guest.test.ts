import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createScratchDisks } from '../../disk/scratch-disk.ts';
import type { Vmm } from '../port.ts';
import { createQemuVmm } from './driver.ts';
import { instants, optionsIn, shape } from './test-edge.ts';
import { vmmPids } from './test-guest.ts';

describe('an edge that dies by SIGKILL while it starts a VMM', () => {
  let directory = '';
  let vmm: Vmm;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-crash-'));
    await using memory = await open(join(directory, 'memory'), 'w');
    await memory.truncate(shape.memoryMiB * 2 ** 20);
    await writeFile(join(directory, 'root'), Buffer.alloc(2 ** 20));
    const { signal } = new AbortController();
    await createScratchDisks(join(directory, 'cache')).create(join(directory, 'disk'), shape.diskMiB, {
      signal,
    });
    vmm = await createQemuVmm({ now: Date.now }, optionsIn(directory));
  });
  after(async () => {
    for (const leftover of await vmm.leftovers()) await vmm.remove(leftover);
    await rm(directory, { recursive: true });
  });

  for (const instant of instants) {
    test(`leaves nothing that the next edge can't find and remove: ${instant}`, async () => {
      const edge = spawn(process.execPath, [join(import.meta.dirname, 'test-edge.ts'), directory, instant], {
        stdio: ['ignore', 'ignore', 'inherit'],
      });
      const [, signalName] = await once(edge, 'exit');
      assert.equal(signalName, 'SIGKILL');

      const [id, ...more] = await readdir(join(directory, 'run'));
      assert.ok(id !== undefined && more.length === 0);
      const pids = await vmmPids(new Set([id]));
      assert.equal(pids.length, instant === 'beforeLaunch' ? 0 : 1);
      const record = JSON.parse(await readFile(join(directory, 'run', id, 'owner.json'), 'utf8'));
      assert.equal(record.process !== null, instant === 'whileConnecting' || instant === 'afterSpawn');

      const leftovers = await vmm.leftovers();
      assert.deepEqual(
        leftovers.map((leftover) => [leftover.id, leftover.pid]),
        [[id, pids[0] ?? null]],
      );
      if (instant === 'afterSpawn') assert.equal((await vmm.adopt(leftovers[0]!)).phase, 'blank');
      await vmm.remove(leftovers[0]!);
      assert.deepEqual(await vmmPids(new Set([id])), []);
      assert.deepEqual(await readdir(join(directory, 'run')), []);
    });
  }
});
