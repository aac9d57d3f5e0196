import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { createImageDigester, type ImageDigester } from './image-digester.ts';
import { snapshotChecksumsSchema, takeChecksums, verifyChecksums } from './snapshot-checksums.ts';

const signal = new AbortController().signal;

describe('snapshot checksums', () => {
  let digester: ImageDigester;
  let directory = '';
  const files = () => ({
    memoryPath: join(directory, 'memory'),
    statePath: join(directory, 'state'),
    diskPath: join(directory, 'disk'),
  });
  before(() => {
    digester = createImageDigester({ extentsToolPath: null, maxThreads: 1 });
  });
  after(() => digester[Symbol.asyncDispose]());
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'snapgate-checksums-'));
    await writeFile(files().memoryPath, Buffer.alloc(300_000, 'm'));
    await writeFile(files().statePath, 'state');
    await writeFile(files().diskPath, 'disk');
  });
  afterEach(() => rm(directory, { recursive: true }));

  test('taken from untouched files verify, and survive their manifest', async () => {
    const taken = await takeChecksums(digester, files(), { signal });
    const kept = snapshotChecksumsSchema.parse(JSON.parse(JSON.stringify(taken)));
    await verifyChecksums(digester, files(), kept, { signal });
  });

  test('a flipped byte, a short file and a missing file are each named', async () => {
    const taken = await takeChecksums(digester, files(), { signal });
    const memory = await readFile(files().memoryPath);
    memory[200_000] = 0;
    await writeFile(files().memoryPath, memory);
    await truncate(files().statePath, 3);
    await rm(files().diskPath);
    await assert.rejects(verifyChecksums(digester, files(), taken, { signal }), (error: unknown) => {
      assert.ok(isGatewayError(error, 'snapshot_corrupt'));
      assert.match(error.message, /memory file has a wrong checksum/);
      assert.match(error.message, /state file has a wrong size/);
      assert.match(error.message, /disk file is missing/);
      return true;
    });
  });

  test('an aborted verification rejects with the reason', async () => {
    const taken = await takeChecksums(digester, files(), { signal });
    const reason = new Error('enough');
    await assert.rejects(verifyChecksums(digester, files(), taken, { signal: AbortSignal.abort(reason) }), {
      message: 'enough',
    });
  });

  test('a file that can not be read is named', async () => {
    const taken = await takeChecksums(digester, files(), { signal });
    await rm(files().diskPath);
    await mkdir(files().diskPath);
    const { size } = await stat(files().diskPath);
    const expected = { ...taken, disk: { ...taken.disk, bytes: size } };
    await assert.rejects(verifyChecksums(digester, files(), expected, { signal }), {
      code: 'snapshot_corrupt',
      message: "the snapshot is damaged: the disk file can't be read",
    });
  });
});
