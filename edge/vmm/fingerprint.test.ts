import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fingerprintDifferences } from './fingerprint.ts';
import type { VmmFingerprint } from './port.ts';

const fingerprint: VmmFingerprint = {
  vmm: 'qemu',
  vmmVersion: '7.2.22',
  accelerator: 'tcg',
  cpuModel: 'max',
  board: 'q35#1',
  hostKernel: '6.1.0',
};

test('equal fingerprints differ in nothing', () => {
  assert.deepEqual(fingerprintDifferences(fingerprint, { ...fingerprint }), []);
});

test('every member of a fingerprint counts, and each difference is named', () => {
  for (const key of Object.keys(fingerprint)) {
    const other = { ...fingerprint, [key]: 'other' };
    const differences = fingerprintDifferences(fingerprint, other);
    assert.equal(differences.length, 1);
    assert.match(differences[0]!, /was .+, is other$/);
  }
});
