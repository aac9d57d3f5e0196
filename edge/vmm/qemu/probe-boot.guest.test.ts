import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { launchDetached } from './launch.ts';
import { type ProbeOptions, probeBoot } from './probe-boot.ts';
import { buildTestGuest, shimPath, type TestGuest } from './test-guest.ts';

describe('the probe boot', () => {
  let directory = '';
  let guest: TestGuest;
  const signal = AbortSignal.timeout(10 * 60_000);
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-probe-'));
    await mkdir(join(directory, 'run'));
    guest = await buildTestGuest(directory, signal);
  });
  after(() => rm(directory, { recursive: true }));

  /** Probes emulation, which works everywhere, in the way that KVM is probed. */
  async function probe(change: Partial<ProbeOptions> = {}): Promise<string | null> {
    const runDirectory = join(directory, 'run');
    const deps = { launch: launchDetached, runDirectory, shimPath, now: Date.now, userOf: () => null };
    try {
      return await probeBoot(deps, {
        binary: '/usr/bin/qemu-system-x86_64',
        acceleration: { accelerator: 'tcg', cpuModel: 'max', translationCacheMiB: 64 },
        guest,
        deadlineMs: 120_000,
        signal,
        ...change,
      });
    } finally {
      assert.deepEqual(await readdir(runDirectory), []);
    }
  }

  test('finds nothing wrong where the kernel comes up', async () => {
    assert.equal(await probe(), null);
  });

  test('says how far a kernel came that is too slow', async () => {
    const reason = await probe({ deadlineMs: 1 });
    assert.match(reason ?? '', /^the guest kernel (printed nothing|did not come up) within 1 ms$/);
  });

  test('says in the words of QEMU why it did not start', async () => {
    const acceleration = { accelerator: 'tcg', cpuModel: 'no-such-cpu', translationCacheMiB: 64 } as const;
    assert.match((await probe({ acceleration })) ?? '', /^the VMM did not start \(.*no-such-cpu.*\)$/);
  });

  test('rejects when aborted, and leaves nothing', async () => {
    const controller = new AbortController();
    const probing = probe({ signal: controller.signal });
    setTimeout(() => controller.abort(new Error('enough')), 50);
    await assert.rejects(probing, { message: 'enough' });
  });
});
