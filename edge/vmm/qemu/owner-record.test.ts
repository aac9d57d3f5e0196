import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import type { MachineId } from '../../../sdk/index.ts';
import { type OwnerRecord, readOwnerRecord, writeOwnerRecord } from './owner-record.ts';

const record: OwnerRecord = {
  format: 1,
  id: 'abcd0123456789efghij' as MachineId,
  generation: 'aaaabbbbcccc',
  createdAt: 1,
  bootId: 'boot',
  process: { pid: 7, startTime: 9 },
  memoryPath: '/m',
  note: { template: 'hello' },
};

describe('an owner record', () => {
  let directory = '';
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-owner-'));
  });
  afterEach(() => rm(directory, { recursive: true }));
  const path = () => join(directory, 'owner.json');

  test('is read as it was written, and replaced in one step', async () => {
    await writeOwnerRecord(path(), { ...record, process: null });
    await writeOwnerRecord(path(), record);
    assert.deepEqual(await readOwnerRecord(path()), record);
    assert.deepEqual(await readdir(directory), ['owner.json']);
  });

  test('keeps no note as null', async () => {
    await writeOwnerRecord(path(), { ...record, note: undefined });
    assert.equal((await readOwnerRecord(path()))?.note, null);
  });

  test('refuses a note that is too long and keeps the old one', async () => {
    await writeOwnerRecord(path(), record);
    await assert.rejects(writeOwnerRecord(path(), { ...record, note: 'x'.repeat(20_000) }), {
      code: 'invalid_request',
    });
    assert.deepEqual(await readOwnerRecord(path()), record);
  });

  test('that is missing, cut off, of another format or with a strange id counts as none', async () => {
    assert.equal(await readOwnerRecord(path()), null);
    for (const text of [
      '',
      JSON.stringify(record).slice(0, 40),
      JSON.stringify({ ...record, format: 2 }),
      JSON.stringify({ ...record, id: '../../etc' }),
      JSON.stringify({ ...record, process: { pid: -1, startTime: 1 } }),
      JSON.stringify({ ...record, more: true }),
    ]) {
      await writeFile(path(), text);
      assert.equal(await readOwnerRecord(path()), null, text);
    }
  });
});
