import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { networkCommand } from './network.ts';
import { parseDestination } from './network-destination.ts';

async function run(network: unknown, ...rest: string[]): Promise<{ output: string; code: number }> {
  const folder = await mkdtemp(join(tmpdir(), 'sg-'));
  try {
    await writeFile(join(folder, 'template.json'), JSON.stringify({ name: 'x', network }));
    const stdout = new PassThrough();
    let code = 0;
    const command = networkCommand({
      context: { workingDirectory: folder, stdout, interrupted: new AbortController().signal },
      client: () => assert.fail('a folder needs no gateway'),
      snapgate: () => assert.fail('a folder needs no gateway'),
      setExitCode: (value) => {
        code = value;
      },
    });
    await command.parseAsync(['explain', '.', ...rest], { from: 'user' });
    stdout.end();
    return { output: String(stdout.read()), code };
  } finally {
    await rm(folder, { recursive: true });
  }
}

test('explain names the rule that decides, and its exit code says which way', async () => {
  assert.deepEqual(await run({ pypi: true }, 'https://pypi.org/simple'), {
    output: 'allowed: by the rule "pypi"\n',
    code: 0,
  });
  assert.equal((await run({ pypi: true }, 'tcp://pypi.org:22')).code, 1);
  assert.match((await run({ '*': true }, 'http://169.254.169.254/')).output, /metadata address/);
  assert.equal((await run({ '10.1.0.0/16': true }, 'tcp://10.1.2.3:5432', '--permit', '10.0.0.0/8')).code, 0);
});

test('what is no destination, or no set of rules, is refused', async () => {
  for (const text of ['pypi.org', 'ftp://a.example.com', 'tcp://a.example.com', ''])
    assert.throws(
      () => parseDestination(text),
      (error) => isGatewayError(error, 'invalid_request'),
    );
  await assert.rejects(run({}, 'https://pypi.org', '--permit', 'nowhere'), (error) =>
    isGatewayError(error, 'invalid_request'),
  );
  await assert.rejects(run({ pypi: 'yes' }, 'https://pypi.org'), (error) =>
    isGatewayError(error, 'invalid_definition'),
  );
});
