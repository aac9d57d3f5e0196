import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { startSandboxHarness } from '../testing/sandbox-harness.ts';

const root = join(import.meta.dirname, '../..');
const run = promisify(execFile);
/** Debian's own Node, the oldest that the SDK promises to run on. */
const systemNode = '/usr/bin/node';

const program = `
  const { Snapgate, isGatewayError } = await import(process.env.SDK);
  const snapgate = new Snapgate({ url: process.env.URL_, apiKey: process.env.KEY });
  const sandbox = await snapgate.sandboxes.create({ template: 'open' });
  const result = await sandbox.run('cat; echo done', { stdin: 'given ' });
  await sandbox.files.write('/tmp/' + sandbox.id, 'kept');
  const text = await sandbox.files.readText('/tmp/' + sandbox.id);
  await sandbox.files.remove('/tmp/' + sandbox.id);
  const { children } = await sandbox.fork({ count: 2 });
  for (const child of children) await child[Symbol.asyncDispose]();
  await sandbox.kill();
  const code = await snapgate.invoke('nothing').catch((error) => isGatewayError(error) && error.code);
  console.log(JSON.stringify([process.versions.node.split('.')[0], result.stdout, text, children.length, code]));
`;

/** What a program in TypeScript writes; it must not compile when the declarations don't hold together. */
const consumerSource = `
  import { Snapgate, type CommandResult, type Sandbox } from './index.js';
  export async function use(sandbox: Sandbox): Promise<number | null> {
    const result: CommandResult = await sandbox.run('true');
    // @ts-expect-error a port is a number
    sandbox.port('80');
    return result.exitCode;
  }
  export const snapgate = new Snapgate({ url: 'http://127.0.0.1' });
`;
const consumerFlags =
  '--ignoreConfig --noEmit --strict --target es2022 --module nodenext --lib es2022,dom,esnext.disposable'.split(
    ' ',
  );
const tsc = join(root, 'node_modules/typescript/bin/tsc');

test('the built SDK runs under the oldest Node it promises, without anything but fetch', async (context) => {
  if (!existsSync(systemNode)) return context.skip(`there is no ${systemNode}`);
  await run(process.execPath, [tsc, '-p', 'sdk/tsconfig.build.json'], {
    cwd: root,
  });
  await using h = await startSandboxHarness();
  const { stdout } = await run(systemNode, ['--input-type=module', '-e', program], {
    env: { SDK: join(root, 'dist/sdk/index.js'), URL_: h.url, KEY: h.key },
  });
  const [major, ...rest] = JSON.parse(stdout);
  assert.ok(Number(major) >= 20);
  assert.deepEqual(rest, ['given done\n', 'kept', 2, 'template_not_found']);
  const consumer = join(root, 'dist/sdk/consumer.test-d.mts');
  await writeFile(consumer, consumerSource);
  try {
    await run(process.execPath, [tsc, ...consumerFlags, consumer], { cwd: root });
  } finally {
    await rm(consumer);
  }
});
