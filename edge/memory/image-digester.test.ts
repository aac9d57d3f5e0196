import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { digestFile } from './image-digest.ts';
import { createImageDigester, type ImageDigester } from './image-digester.ts';

const signal = new AbortController().signal;

describe('the image digester', () => {
  let digester: ImageDigester;
  let directory = '';
  const path = () => join(directory, 'memory');
  before(async () => {
    digester = createImageDigester({ extentsToolPath: null, maxThreads: 1 });
    directory = await mkdtemp(join(tmpdir(), 'snapgate-digester-'));
    await writeFile(path(), Buffer.alloc(300_000, 'm'));
  });
  after(async () => {
    await digester[Symbol.asyncDispose]();
    await rm(directory, { recursive: true });
  });

  test('answers from its threads what the definition says', async () => {
    const digests = await Promise.all([1, 2, 3].map(() => digester.digest(path(), { signal })));
    assert.deepEqual(new Set(digests), new Set([digestFile(path(), null)]));
  });

  test('rejects for a file that can not be read, and works on', async () => {
    await assert.rejects(digester.digest(join(directory, 'nothing'), { signal }), /ENOENT/);
    assert.equal(await digester.digest(path(), { signal }), digestFile(path(), null));
  });

  test('rejects with the reason when aborted', async () => {
    const aborted = AbortSignal.abort(new Error('enough'));
    await assert.rejects(digester.digest(path(), { signal: aborted }), { message: 'enough' });
  });

  test('does not take a tool that fails for an empty file', async () => {
    await using odd = createImageDigester({ extentsToolPath: '/bin/false' });
    await assert.rejects(odd.digest(path(), { signal }));
  });
});
