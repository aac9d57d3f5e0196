import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { decideAccelerator } from './accelerator.ts';

const key = { qemuVersion: '7.2', hostKernel: '6.1', cpuName: 'cpu', cpuModel: 'Westmere-v1' };

describe("the accelerator's verdict", () => {
  let directory = '';
  let probes = 0;
  let failure: string | null = null;
  let hasDevice = true;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-verdict-'));
    probes = 0;
    failure = null;
    hasDevice = true;
  });
  afterEach(() => rm(directory, { recursive: true }));
  const cachePath = () => join(directory, 'cache', 'accelerator.json');
  const decide = (change: object = {}, isProbeForced = false) =>
    decideAccelerator(
      {
        hasKvmDevice: async () => hasDevice,
        probe: async () => {
          probes++;
          return failure;
        },
        now: () => 5,
      },
      { key: { ...key, ...change }, cachePath: cachePath(), isProbeForced },
    );

  test('is emulation, without a probe, where there is no device', async () => {
    hasDevice = false;
    assert.equal((await decide()).accelerator, 'tcg');
    assert.equal(probes, 0);
    hasDevice = true;
    assert.equal((await decide()).accelerator, 'kvm');
  });

  test('is KVM when the probe came up, and emulation with the reason in a sentence when not', async () => {
    assert.deepEqual(await decide(), {
      accelerator: 'kvm',
      reason: 'Guests run under KVM: a probe boot of the guest kernel came up.',
      decidedAt: 5,
    });
    failure = 'the guest kernel printed nothing within 4000 ms';
    const verdict = await decide({}, true);
    assert.equal(verdict.accelerator, 'tcg');
    assert.match(
      verdict.reason,
      /^Guests are emulated: .* the guest kernel printed nothing within 4000 ms\.$/,
    );
  });

  test('is remembered until the host, its CPU or QEMU changes, or somebody asks', async () => {
    const first = await decide();
    assert.deepEqual(await decide(), first);
    assert.equal(probes, 1);
    for (const change of [{ qemuVersion: '8' }, { hostKernel: '6.2' }, { cpuName: 'x' }, { cpuModel: 'y' }])
      await decide(change);
    assert.equal(probes, 5);
    await decide({ cpuModel: 'y' }, true);
    assert.equal(probes, 6);
  });

  test('is asked for again when the remembered one is damaged', async () => {
    await decide();
    await writeFile(cachePath(), '{"format":1,"verdict":{"accelerator":"kvm"}}');
    await decide();
    assert.equal(probes, 2);
  });
});
