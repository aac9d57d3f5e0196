import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { readNetworkConfig } from './open.ts';

test('the operator’s file is optional, strict, and named in what is wrong with it', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'sg-'));
  const path = join(directory, 'network.json');
  try {
    assert.deepEqual((await readNetworkConfig(path)).permittedRanges, []);
    const config = {
      permittedRanges: ['10.1.0.0/16'],
      resolvers: ['192.0.2.53', '192.0.2.53#5353', '2001:db8::53'],
    };
    await writeFile(path, JSON.stringify(config));
    assert.deepEqual((await readNetworkConfig(path)).resolvers, config.resolvers);
    for (const wrong of [
      '{',
      '{"permittedRange": []}',
      '{"permittedRanges": ["ten"]}',
      '{"resolvers": ["dns.example.com"]}',
      '{"connections": 0}',
    ]) {
      await writeFile(path, wrong);
      await assert.rejects(readNetworkConfig(path), (error) => {
        assert.ok(isGatewayError(error, 'invalid_request'));
        return error.message.startsWith(path);
      });
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});
