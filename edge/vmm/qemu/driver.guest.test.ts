import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { isGatewayError } from '../../../sdk/index.ts';
import { connectGuest } from '../../guest/index.ts';
import { readMemoryUse } from '../../memory/index.ts';
import type { PausedVmm, RunningVmm, SnapshotFiles, Vmm, VmmProcess } from '../port.ts';
import { createQemuVmm } from './driver.ts';
import { type Launch, launchDetached } from './launch.ts';
import { machineFiles } from './machine-files.ts';
import {
  bootCounter,
  buildTestGuest,
  counts,
  newId,
  shimPath,
  snapshotAt,
  spawnOver,
  startProgram,
  type TestGuest,
  vmmPids,
  waitForCount,
} from './test-guest.ts';

const run = promisify(execFile);
const signal = AbortSignal.timeout(15 * 60_000);

describe('the QEMU driver with a real guest', () => {
  let directory = '';
  let guest: TestGuest;
  let vmm: Vmm;
  let base: SnapshotFiles;
  /** The count at which the base was captured. */
  let captured = 0;
  const runDirectory = () => join(directory, 'run');
  const driver = (launch?: Launch) =>
    createQemuVmm(
      { now: Date.now, ...(launch === undefined ? {} : { launch }) },
      {
        runDirectory: runDirectory(),
        cacheDirectory: join(directory, 'cache'),
        shimPath,
        probeGuest: guest,
        signal,
      },
    );
  const restore = async (snapshot: SnapshotFiles, from: Vmm = vmm): Promise<RunningVmm> => {
    const blank = await spawnOver(from, guest, snapshot);
    return (await blank.load(snapshot.statePath, { signal })).resume();
  };
  const sha256 = async (path: string) =>
    createHash('sha256')
      .update(await readFile(path))
      .digest('hex');
  const machinesOnDisk = () => readdir(runDirectory());
  /** Rejects with a GatewayError of this code whose output matches. */
  const fails = (promise: Promise<unknown>, code: 'vmm_failed' | 'restore_failed', output: RegExp) =>
    assert.rejects(promise, (error: unknown) => {
      assert.ok(isGatewayError(error, code), String(error));
      assert.match(error.details.output ?? '', output);
      return true;
    });

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-vmm-'));
    guest = await buildTestGuest(directory, signal);
    vmm = await driver();
    base = snapshotAt(directory, 'base');
    const booted = await bootCounter(vmm, guest, base, signal);
    const paused = await booted.pause();
    assert.equal(await (await paused.saveState()).moveTo(base.statePath), (await stat(base.statePath)).size);
    await paused.quit();
    assert.equal((await paused.exited).isExpected, true);
    captured = (await counts(paused)).at(-1) ?? 0;
    await paused.dispose();
  });

  after(async () => {
    try {
      assert.deepEqual(await machinesOnDisk(), [], 'machine directories are left');
      assert.deepEqual(await vmmPids(new Set([directory, runDirectory()])), []);
    } finally {
      for (const leftover of await vmm.leftovers()) await vmm.remove(leftover);
      await rm(directory, { recursive: true });
    }
  });

  test('the verdict names the accelerator and says why in a sentence', async () => {
    assert.match(vmm.verdict.reason, /^Guests (are emulated|run under KVM).*\.$/);
    assert.equal(vmm.fingerprint.accelerator, vmm.verdict.accelerator);
    assert.deepEqual((await driver()).verdict, vmm.verdict, 'a second driver takes the remembered verdict');
  });

  test('two clones go on counting where the template stopped, and leave its files as they were', async () => {
    const before = await sha256(base.memoryPath);
    const { mtimeMs } = await stat(base.memoryPath);
    const disk = await sha256(base.diskPath);
    await using first = await restore(base);
    await using second = await restore(base);
    for (const clone of [first, second]) {
      const seen = await waitForCount(clone, captured + 10);
      assert.equal(seen[0], captured + 1);
    }
    const use = await readMemoryUse(first.pid, base.memoryPath);
    assert.ok(use.ram.privateBytes > 2 * 2 ** 20, 'what the guest wrote is private');
    assert.ok(use.ram.privateBytes < 64 * 2 ** 20, 'what it did not write is shared');
    assert.ok(use.overheadBytes > 0 && use.proportionalBytes > use.ram.privateBytes);
    assert.equal(await sha256(base.memoryPath), before);
    assert.equal((await stat(base.memoryPath)).mtimeMs, mtimeMs);
    assert.equal(await sha256(base.diskPath), disk);
  });

  test("a clone's agent answers over its own socket", async () => {
    await using clone = await restore(base);
    await using channel = await connectGuest({
      socketPath: clone.agentSocketPath,
      token: guest.token,
      signal,
    });
    assert.equal((await channel.ping({ signal })).protocol, 2);
    assert.equal((await channel.processStatus('counter', { signal })).state, 'running');
  });

  test('a paused guest stands still, and its console with it', async () => {
    await using clone = await restore(base);
    await waitForCount(clone, captured + 2);
    const paused = await clone.pause();
    const before = await counts(paused);
    await connectGuest({
      socketPath: paused.agentSocketPath,
      token: guest.token,
      signal: AbortSignal.timeout(500),
    }).then(
      () => assert.fail('a stopped guest answered'),
      () => {},
    );
    assert.deepEqual(await counts(paused), before);
    await waitForCount(await paused.resume(), (before.at(-1) ?? 0) + 2);
  });

  test('the state of a clone is saved without its memory, and a clone of the clone goes on from there', async () => {
    const next = { ...snapshotAt(directory, 'next'), diskPath: base.diskPath };
    await using clone = await restore(base);
    await waitForCount(clone, captured + 5);
    const paused = await clone.pause();
    await paused.freezeDisk();
    assert.ok((await (await paused.saveState()).moveTo(next.statePath)) < 2 ** 20);
    await copyMemory(paused, next.memoryPath, guest.shape.memoryMiB);
    const at = (await counts(paused)).at(-1) ?? 0;
    const blank = await spawnOver(vmm, guest, next);
    await blank.stackDisk(await paused.frozenLayers());
    await using child = await (await blank.load(next.statePath, { signal })).resume();
    assert.equal((await waitForCount(child, at + 5))[0], at + 1);
    const resumed = await waitForCount(await paused.resume(), at + 5);
    assert.ok(resumed.includes(at + 1), 'the source goes on as well');
  });

  test('state is saved as often as wanted, taken once the machine runs again, and never over another file', async () => {
    await using clone = await restore(base);
    const paused = await clone.pause();
    const taken = join(directory, 'taken');
    await writeFile(taken, 'mine');
    const first = await paused.saveState();
    await assert.rejects(first.moveTo(taken), { code: 'vmm_failed' });
    assert.equal(await readFile(taken, 'utf8'), 'mine');
    const statePath = join(directory, 'second');
    const second = await paused.saveState();
    const at = (await counts(paused)).at(-1) ?? 0;
    const running = await paused.resume();
    await waitForCount(running, at + 2);
    assert.equal(await second.moveTo(statePath), (await stat(statePath)).size);
    await assert.rejects(second.moveTo(join(directory, 'third')), { code: 'vmm_failed' });
  });

  test('a state that is no plain file is refused', async () => {
    await using clone = await restore(base);
    const paused = await clone.pause();
    const state = await paused.saveState();
    const file = machineFiles(paused.directory.path).state;
    await rm(file);
    await symlink('/etc/passwd', file);
    const statePath = join(directory, 'foreign');
    await assert.rejects(state.moveTo(statePath), { code: 'vmm_failed' });
    await assert.rejects(stat(statePath), { code: 'ENOENT' });
  });

  test('a full disk while saving is told as such, and the machine goes on', {
    skip: process.getuid?.() !== 0,
  }, async () => {
    const small = join(directory, 'small');
    await mkdir(small);
    await run('mount', ['-t', 'tmpfs', '-o', 'size=16k', 'tmpfs', small]);
    try {
      await using clone = await restore(base);
      const paused = await clone.pause();
      const state = await paused.saveState();
      await assert.rejects(state.moveTo(join(small, 'state')), { code: 'disk_full' });
      assert.deepEqual(await readdir(small), []);
      const at = (await counts(paused)).at(-1) ?? 0;
      await waitForCount(await paused.resume(), at + 2);
    } finally {
      await run('umount', [small]);
    }
  });

  test('a VMM that is killed is seen to exit, with what the guest said last', async () => {
    const clone = await restore(base);
    await waitForCount(clone, captured + 1);
    process.kill(clone.pid, 'SIGKILL');
    const exit = await clone.exited;
    assert.deepEqual([exit.signalName, exit.exitCode, exit.isExpected], ['SIGKILL', null, false]);
    assert.match(exit.consoleTail, /COUNT/);
    await fails(clone.pause(), 'vmm_failed', /COUNT/).catch((error: unknown) => {
      assert.match(String(error), /pause of a VMM that is over/);
    });
    await clone.dispose();
    await clone.dispose();
    await assert.rejects(stat(clone.directory.path), { code: 'ENOENT' });
  });

  test('a start that fails carries the words of QEMU and leaves nothing', async () => {
    const snapshot = { ...base, diskPath: base.statePath };
    await fails(
      vmm.spawnBlank({ id: newId(), shape: guest.shape, snapshot, signal }),
      'vmm_failed',
      /vmm stderr:\n.*Image is not in qcow2 format/,
    );
    assert.deepEqual(await machinesOnDisk(), []);
  });

  test('a boot that fails removes the files it had created', async () => {
    const files = snapshotAt(directory, 'failed');
    const shape = { ...guest.shape, rootPath: join(directory, 'missing.erofs') };
    const boot = vmm.boot({ ...guest, id: newId(), shape, kernelArgs: [], ...files, signal });
    await assert.rejects(boot, { code: 'snapshot_corrupt', message: /missing\.erofs/ });
    await assert.rejects(stat(files.memoryPath), { code: 'ENOENT' });
    await assert.rejects(stat(files.diskPath), { code: 'ENOENT' });
    await writeFile(files.diskPath, 'mine');
    await assert.rejects(
      vmm.boot({ ...guest, id: newId(), kernelArgs: [], ...files, signal }),
      (error: unknown) => isGatewayError(error),
    );
    assert.equal(
      await readFile(files.diskPath, 'utf8'),
      'mine',
      'what was there before is not ours to remove',
    );
    assert.deepEqual(await machinesOnDisk(), []);
  });

  test('each VMM runs confined, as a user of its own, without privileges, secrets or files of others', async () => {
    await using first = await restore(base);
    await using second = await restore(base);
    const facts = async (machine: VmmProcess) => {
      const proc = `/proc/${machine.pid}`;
      const status = await readFile(`${proc}/status`, 'utf8');
      const field = (name: string) => new RegExp(`^${name}:\\s+(\\S+)`, 'm').exec(status)?.[1];
      const files = await Promise.all(
        (await readdir(`${proc}/fd`)).map((fd) => readlink(`${proc}/fd/${fd}`).catch(() => '')),
      );
      return { field, files, proc };
    };
    const [one, two] = [await facts(first), await facts(second)];
    for (const { field, files, proc } of [one, two]) {
      assert.equal(field('NoNewPrivs'), '1');
      assert.equal(field('Seccomp'), '2');
      const own = files.filter((path) => path.startsWith('/') && !path.startsWith('/dev/'));
      const allowed = [base.memoryPath, base.diskPath, guest.shape.rootPath];
      for (const path of own)
        assert.ok(path.startsWith(runDirectory()) || allowed.includes(path), `${path} is open`);
      const environment = (await readFile(`${proc}/environ`, 'utf8')).split('\0').filter(Boolean);
      assert.ok(environment.every((line) => /^(LC_ALL|LD_PRELOAD|SNAPGATE_[A-Z_]+)=/.test(line)));
      assert.match(await readFile(`${proc}/limits`, 'utf8'), /Max core file size\s+0\s+0/);
    }
    if (process.getuid?.() !== 0) return;
    assert.notEqual(one.field('Uid'), '0');
    assert.notEqual(one.field('Uid'), two.field('Uid'));
    assert.equal(one.field('CapEff'), '0000000000000000');
  });

  test('a start that is aborted, however early or late, is cancelled and leaves nothing', async () => {
    for (const delayMs of [null, 0, 1, 2, 4, 8, 16]) {
      const controller = new AbortController();
      if (delayMs === null) controller.abort();
      else setTimeout(() => controller.abort(), delayMs);
      const options = { id: newId(), shape: guest.shape, snapshot: base, signal: controller.signal };
      await assert.rejects(vmm.spawnBlank(options), { code: 'cancelled' });
      assert.deepEqual(await machinesOnDisk(), []);
    }
  });

  test('an id is used once', async () => {
    await using clone = await restore(base);
    const again = vmm.spawnBlank({ id: clone.id, shape: guest.shape, snapshot: base, signal });
    await assert.rejects(again, { code: 'conflict' });
    await waitForCount(clone, captured + 1);
  });

  test('a damaged state is refused with the words of QEMU, and the VMM is gone', async () => {
    const statePath = join(directory, 'damaged');
    const state = await readFile(base.statePath);
    await writeFile(statePath, state.subarray(0, state.length / 2));
    const blank = await spawnOver(vmm, guest, base);
    await fails(blank.load(statePath, { signal }), 'restore_failed', /load of migration failed/);
    assert.deepEqual(await machinesOnDisk(), []);
    const other = await spawnOver(vmm, guest, base);
    await writeFile(statePath, '');
    await assert.rejects(other.load(statePath, { signal }), { code: 'snapshot_corrupt' });
    assert.deepEqual(await machinesOnDisk(), []);
  });

  test('without the shim a clone does not start, rather than write into the template', async () => {
    const unguarded = await driver((spec) => launchDetached({ ...spec, env: {} }));
    const before = await stat(base.memoryPath);
    await fails(spawnOver(unguarded, guest, base), 'vmm_failed', /can't open backing store/);
    assert.equal((await stat(base.memoryPath)).mtimeMs, before.mtimeMs);
  });

  test('a guest that floods its console fills neither memory nor disk', async () => {
    await using clone = await restore(base);
    await startProgram(clone, guest, 'flood', ['flood']);
    while (!(await clone.consoleTail()).includes('f'.repeat(4000))) await new Promise(setImmediate);
    assert.ok((await clone.consoleTail()).length <= 8192);
    const names = await readdir(clone.directory.path, { recursive: true, withFileTypes: true });
    const sizes = await Promise.all(
      names
        .filter((entry) => entry.isFile() && !['disk.qcow2', 'map-private.so'].includes(entry.name))
        .map(async (entry) => (await stat(join(entry.parentPath, entry.name))).size),
    );
    assert.ok(sizes.reduce((sum, size) => sum + size, 0) < 64 * 1024);
  });

  test('machines in each phase are adopted by the next edge, with their notes, and go on', async () => {
    const blank = await spawnOver(vmm, guest, base);
    const paused = await (await restore(base)).pause();
    const running = await restore(base);
    await running.annotate({ sandbox: 'abc' });
    const old: VmmProcess[] = [blank, paused, running];
    for (const machine of old) await machine.detach();

    const successor = await driver();
    const leftovers = await successor.leftovers();
    assert.deepEqual(new Set(leftovers.map(({ pid }) => pid)), new Set(old.map(({ pid }) => pid)));
    const adopted = new Map<string, Awaited<ReturnType<Vmm['adopt']>>>();
    for (const leftover of leftovers) adopted.set(leftover.id, await successor.adopt(leftover));
    assert.deepEqual(leftovers.find(({ id }) => id === running.id)?.note, { sandbox: 'abc' });

    const [newBlank, newPaused, newRunning] = old.map(({ id }) => adopted.get(id));
    assert.ok(
      newBlank?.phase === 'blank' && newPaused?.phase === 'paused' && newRunning?.phase === 'running',
    );
    assert.equal(newRunning.generation, running.generation);
    assert.equal(newRunning.memoryPath, base.memoryPath);
    const loaded = await (await newBlank.load(base.statePath, { signal })).resume();
    assert.equal((await waitForCount(loaded, captured + 2))[0], captured + 1);
    await waitForCount(await newPaused.resume(), captured + 2);
    process.kill(newRunning.pid, 'SIGKILL');
    assert.equal((await newRunning.exited).isExpected, false);
    for (const machine of adopted.values()) await machine.dispose();
    assert.deepEqual(await machinesOnDisk(), []);
  });

  test('leftovers are found by their process even when the record lacks it, and are removed', async () => {
    const kept = await spawnOver(vmm, guest, base);
    const lost = await spawnOver(vmm, guest, base);
    const dead = await spawnOver(vmm, guest, base);
    for (const machine of [kept, lost, dead]) await machine.detach();
    const recordPath = join(lost.directory.path, 'owner.json');
    const record = JSON.parse(await readFile(recordPath, 'utf8'));
    await writeFile(recordPath, JSON.stringify({ ...record, process: null }));
    process.kill(dead.pid, 'SIGKILL');
    while ((await vmmPids(new Set([dead.id]))).length > 0) await new Promise(setImmediate);

    const leftovers = await vmm.leftovers();
    const pidOf = (machine: VmmProcess) => leftovers.find(({ id }) => id === machine.id)?.pid;
    assert.deepEqual([pidOf(kept), pidOf(lost), pidOf(dead)], [kept.pid, lost.pid, null]);
    const deadLeftover = leftovers.find(({ id }) => id === dead.id);
    assert.ok(deadLeftover);
    await assert.rejects(vmm.adopt(deadLeftover), { code: 'vmm_failed' });
    for (const leftover of leftovers) await vmm.remove(leftover);
    assert.deepEqual(await machinesOnDisk(), []);
    assert.deepEqual(await vmmPids(new Set([kept.id, lost.id, dead.id])), []);
  });
});

/** All RAM of a paused machine, holes kept: what a delta will later do with the private pages alone. */
async function copyMemory(machine: PausedVmm, path: string, memoryMiB: number): Promise<void> {
  const maps = await readFile(`/proc/${machine.pid}/maps`, 'utf8');
  const line = maps.split('\n').find((text) => text.endsWith(machine.memoryPath));
  const start = Number.parseInt(line ?? '', 16);
  await using from = await open(`/proc/${machine.pid}/mem`, 'r');
  await using to = await open(path, 'wx');
  await to.truncate(memoryMiB * 2 ** 20);
  const chunk = Buffer.alloc(2 ** 20);
  const zero = Buffer.alloc(2 ** 20);
  for (let offset = 0; offset < memoryMiB * 2 ** 20; offset += chunk.length) {
    await from.read(chunk, 0, chunk.length, start + offset);
    if (!chunk.equals(zero)) await to.write(chunk, 0, chunk.length, offset);
  }
}
