import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { acceleratorCheck, nodeAcceleratorCheck } from './accelerator-check.ts';

const options = { signal: new AbortController().signal };
const guest = async () => ({ kernelPath: '/kernel', initrdPath: '/initrd' });
const verdict = (accelerator: 'kvm' | 'tcg') => async () => ({
  accelerator,
  reason: 'Because.',
  decidedAt: 0,
});

test('a host on which guests run under KVM is well', async () => {
  const check = await acceleratorCheck({ guest, judge: verdict('kvm') }).run(options);
  assert.deepEqual(check, { id: 'accelerator', title: 'Accelerator', status: 'ok', detail: 'Because.' });
});

test('emulation is a warning that says why, and what it means for tenants', async () => {
  const { status, detail } = await acceleratorCheck({ guest, judge: verdict('tcg') }).run(options);
  assert.equal(status, 'warn');
  assert.match(detail, /^Because\. .*no boundary between tenants/);
});

test('before the first start nothing is decided, built or written', async (context) => {
  const directory = await mkdtemp(join(tmpdir(), 'snapgate-doctor-'));
  context.after(() => rm(directory, { recursive: true }));
  const dataDirectory = join(directory, 'data');
  const places = { dataDirectory, agentPath: import.meta.filename, shimPath: '/none', isProbeForced: false };
  const { status, detail } = await nodeAcceleratorCheck(places).run(options);
  assert.equal(status, 'warn');
  assert.match(detail, /^not decided yet/);
  assert.deepEqual(await readdir(directory), []);
});
