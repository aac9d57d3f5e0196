import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { generate, generatedFiles } from './generate.ts';

test('the committed code of the protocol is what its definitions give', async () => {
  const fresh = await mkdtemp(join(tmpdir(), 'sg-proto-'));
  try {
    await generate(fresh);
    for (const name of generatedFiles) {
      const [expected, committed] = await Promise.all(
        [fresh, join(import.meta.dirname, 'gen')].map((directory) => readFile(join(directory, name), 'utf8')),
      );
      assert.equal(committed, expected, `${name} is stale: run node gateway/e2b/proto/generate.ts`);
    }
  } finally {
    await rm(fresh, { recursive: true });
  }
});
