import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../sdk/index.ts';
import { toVmmError } from './failure.ts';
import { QmpError } from './qmp-client.ts';

const codes = { failed: 'restore_failed', timeout: 'restore_timeout' } as const;
const lines = { stderr: 'qemu: broken pipe dream', console: 'Kernel panic' };
const translate = (cause: unknown, last = lines) => toVmmError(cause, 'restore the machine', codes, last);

test('a failure carries the last lines of VMM and guest, each under its heading', () => {
  const error = translate(new Error('x'));
  assert.equal(error.code, 'restore_failed');
  assert.equal(error.details.output, 'vmm stderr:\nqemu: broken pipe dream\n\nguest console:\nKernel panic');
  assert.equal(translate(new Error('x'), { stderr: '', console: '' }).details.output, undefined);
});

test('deadlines, aborts, full disks and refusals each have their code', () => {
  assert.equal(translate(new DOMException('', 'TimeoutError')).code, 'restore_timeout');
  assert.equal(translate(new QmpError('timeout', 'slow')).code, 'restore_timeout');
  assert.equal(translate(new DOMException('', 'AbortError')).code, 'cancelled');
  assert.equal(translate(Object.assign(new Error(), { code: 'ENOSPC' })).code, 'disk_full');
  assert.equal(
    translate(new Error(), { stderr: 'write: No space left on device', console: '' }).code,
    'disk_full',
  );
  assert.match(translate(new QmpError('refused', 'QEMU refused `x`')).message, /QEMU refused `x`/);
});

test('an error that has a code keeps it and gains the last lines', () => {
  const error = translate(new GatewayError('conflict', 'taken', { component: 'edge' }));
  assert.equal(error.code, 'conflict');
  assert.match(error.details.output ?? '', /Kernel panic/);
  const full = new GatewayError('disk_full', 'full', { output: 'own' });
  assert.equal(translate(full), full);
});
