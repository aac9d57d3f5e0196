import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createPageCopier, findRamMapping, type PageCopier } from '../../memory/index.ts';
import type { RunningVmm, SnapshotFiles, Vmm } from '../port.ts';
import { createQemuVmm } from './driver.ts';
import {
  bootCounter,
  buildTestGuest,
  counts,
  shimPath,
  snapshotAt,
  spawnOver,
  type TestGuest,
  waitForCount,
} from './test-guest.ts';

const signal = AbortSignal.timeout(5 * 60_000);
const copierPath = join(import.meta.dirname, '../../native/build/page-copy');

/** What a machine was at one instant, beside its base: pages, device state, disk layers. */
interface Capture {
  readonly deltaPath: string;
  readonly statePath: string;
  readonly layers: readonly string[];
  readonly count: number;
}

describe('forking a running guest with its memory and disk', () => {
  let directory = '';
  let guest: TestGuest;
  let vmm: Vmm;
  let copier: PageCopier;
  let base: SnapshotFiles;
  let captures = 0;
  const sha256 = async (path: string) =>
    createHash('sha256')
      .update(await readFile(path))
      .digest('hex');

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-fork-'));
    guest = await buildTestGuest(directory, signal);
    copier = createPageCopier({ toolPath: copierPath });
    vmm = await createQemuVmm(
      { now: Date.now },
      {
        runDirectory: join(directory, 'run'),
        cacheDirectory: join(directory, 'cache'),
        shimPath,
        accelerator: 'tcg',
        signal,
      },
    );
    base = snapshotAt(directory, 'base');
    const paused = await (await bootCounter(vmm, guest, base, signal)).pause();
    await (await paused.saveState()).moveTo(base.statePath);
    await paused.quit();
    await paused.dispose();
  });
  after(async () => {
    try {
      assert.deepEqual(await readdir(join(directory, 'run')), []);
    } finally {
      await copier[Symbol.asyncDispose]();
      for (const leftover of await vmm.leftovers()) await vmm.remove(leftover);
      await rm(directory, { recursive: true });
    }
  });

  /** Takes a guest's state while it stands still, and lets it go on. */
  async function capture(running: RunningVmm): Promise<Capture & { readonly source: RunningVmm }> {
    const place = join(directory, `capture-${captures++}`);
    await mkdir(place);
    await running.prepareFreeze();
    const mapping = await findRamMapping(running.pid, base.memoryPath);
    const paused = await running.pause();
    // What it has printed is still on its way to us.
    await sleep(200);
    const count = (await counts(paused)).at(-1) ?? 0;
    const deltaPath = join(place, 'delta');
    const statePath = join(place, 'state');
    const copy = copier.capture(paused.pid, mapping, deltaPath);
    await Promise.all([copy.copied, paused.freezeDisk()]);
    const state = await paused.saveState();
    const source = await paused.resume();
    await state.moveTo(statePath);
    await copy.written;
    return { deltaPath, statePath, layers: await source.frozenLayers(), count, source };
  }

  async function child({ deltaPath, statePath, layers }: Capture): Promise<RunningVmm> {
    const blank = await spawnOver(vmm, guest, base);
    await blank.stackDisk(layers);
    await copier.apply(blank.pid, await findRamMapping(blank.pid, base.memoryPath), deltaPath);
    return (await blank.load(statePath, { signal })).resume();
  }

  /** The line that was half printed when the guest stood still is not seen whole in the child. */
  const isNext = (first: number | undefined, count: number) => first === count + 1 || first === count + 2;

  const restoreBase = async () =>
    (await (await spawnOver(vmm, guest, base)).load(base.statePath, { signal })).resume();

  test('children go on where their parents stood, over three generations, and the base stays as it is', async () => {
    const memory = await sha256(base.memoryPath);
    const disk = await sha256(base.diskPath);
    await using stack = new AsyncDisposableStack();
    let parent = stack.use(await restoreBase());
    for (let generation = 1; generation <= 3; generation++) {
      await waitForCount(parent, ((await counts(parent)).at(-1) ?? 0) + 5);
      const taken = await capture(parent);
      assert.equal(taken.layers.length, generation);
      const [first, second] = [stack.use(await child(taken)), stack.use(await child(taken))];
      for (const machine of [first, second]) {
        // Each count is checked against the size of the guest's file, so this is about the disk too.
        const seen = await waitForCount(machine, taken.count + 5);
        assert.ok(isNext(seen[0], taken.count), `${seen[0]} after ${taken.count}`);
      }
      const later = await waitForCount(taken.source, taken.count + 5);
      assert.ok(later.includes(taken.count + 1), 'the source goes on as well');
      parent = first;
    }
    assert.equal(await sha256(base.memoryPath), memory);
    assert.equal(await sha256(base.diskPath), disk);
  });

  test('a machine is forked again and again, and what it writes later is in no earlier child', async () => {
    await using stack = new AsyncDisposableStack();
    let source = stack.use(await restoreBase());
    await waitForCount(source, 1);
    const taken: Capture[] = [];
    for (let round = 0; round < 3; round++) {
      const next = await capture(source);
      taken.push(next);
      await waitForCount(next.source, next.count + 3);
      source = next.source;
    }
    assert.deepEqual(
      taken.map(({ layers }) => layers.length),
      [1, 2, 3],
    );
    for (const one of taken) {
      await using machine = await child(one);
      const [first] = await waitForCount(machine, one.count + 3);
      assert.ok(isNext(first, one.count), `${first} after ${one.count}`);
    }
  });

  test('layers of a disk are folded while the guest runs, and children have all that was in them', async () => {
    await using stack = new AsyncDisposableStack();
    let source = stack.use(await child(await capture(stack.use(await restoreBase()))));
    await waitForCount(source, 2);
    for (let round = 0; round < 3; round++) source = (await capture(source)).source;
    assert.equal((await source.frozenLayers()).length, 4);
    await source.foldDisk();
    assert.deepEqual(await source.frozenLayers(), []);
    await source.foldDisk();
    const taken = await capture(source);
    assert.equal(taken.layers.length, 1);
    await using machine = await child(taken);
    await waitForCount(machine, taken.count + 3);
    const links = await readdir(join(source.directory.path, 'layers'));
    assert.equal(links.length, 1, 'links of folded layers are gone');
  });

  test('an adopted machine is forked, also when its next layer was already prepared', async () => {
    const first = await restoreBase();
    const { source } = await capture(first);
    await source.prepareFreeze();
    await source.detach();
    const [leftover] = await vmm.leftovers();
    assert.ok(leftover !== undefined);
    const adopted = await vmm.adopt(leftover);
    assert.ok(adopted.phase === 'running');
    await using taken = (await capture(adopted)).source;
    assert.equal((await taken.frozenLayers()).length, 2);
    await using machine = await child({ ...(await capture(taken)) });
    await waitForCount(machine, 3);
  });

  test('frozen layers can not be written any more, and lie where the VMM can not reach', async () => {
    await using machine = (await capture(await restoreBase())).source;
    for (const path of await machine.frozenLayers()) {
      const found = await stat(path);
      assert.equal(found.mode & 0o777, 0o444);
      assert.equal(found.uid, process.getuid?.());
      assert.ok(!path.includes('/vmm/'));
    }
  });
});
