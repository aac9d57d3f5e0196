import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { loadDefinition } from './load.ts';

const signal = new AbortController().signal;

async function folderWith(context: TestContext, files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'snapgate-load-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  return folder;
}

test('template.json is read', async (context) => {
  const folder = await folderWith(context, { 'template.json': '{"name": "hello"}' });
  assert.equal((await loadDefinition(folder, { signal })).name, 'hello');
});

test('template.ts may compute its definition, import defineTemplate and print what it likes', async (context) => {
  const folder = await folderWith(context, {
    'template.ts': `
      import { defineTemplate } from 'snapgate';
      import { packages } from './packages.ts';
      console.log('{"name": "not this"}');
      const name: string = ['hel', 'lo'].join('');
      setInterval(() => {}, 1000);
      export default defineTemplate({ name, image: { packages } });`,
    'packages.ts': `export const packages: string[] = ['python3'];`,
  });
  const definition = await loadDefinition(folder, { signal });
  assert.equal(definition.name, 'hello');
  assert.deepEqual(definition.image.packages, ['python3']);
});

for (const [what, text, expected] of [
  ['throws', `throw new Error('no luck');`, /no luck/],
  ['has a syntax error', 'export default {', /SyntaxError/],
  ['exports nothing', 'export const name = 1;', /no default export/],
] as const) {
  test(`a template.ts that ${what} is refused with what it printed`, async (context) => {
    const folder = await folderWith(context, { 'template.ts': text });
    await assert.rejects(loadDefinition(folder, { signal }), (error) => {
      assert.ok(isGatewayError(error, 'invalid_definition'), String(error));
      assert.match(error.details.output ?? '', expected);
      return true;
    });
  });
}

test('a template.ts that never ends is ended at the deadline', async (context) => {
  const folder = await folderWith(context, { 'template.ts': 'for (;;);' });
  await assert.rejects(loadDefinition(folder, { signal, timeoutMs: 300 }), /did not finish within 0.3 s/);
});

test('a cancelled load ends with the reason of the caller', async (context) => {
  const folder = await folderWith(context, { 'template.ts': 'for (;;);' });
  await assert.rejects(loadDefinition(folder, { signal: AbortSignal.timeout(200) }), {
    name: 'TimeoutError',
  });
});

test('a definition from template.ts is validated like any other', async (context) => {
  const folder = await folderWith(context, { 'template.ts': `export default { name: 'hello', colour: 1 };` });
  await assert.rejects(loadDefinition(folder, { signal }), /colour: is not a field/);
});

test('a folder with both files or none is refused', async (context) => {
  const both = await folderWith(context, { 'template.json': '{}', 'template.ts': '' });
  await assert.rejects(loadDefinition(both, { signal }), /both template.json and template.ts/);
  const none = await folderWith(context, {});
  await assert.rejects(loadDefinition(none, { signal }), (error) => {
    assert.ok(isGatewayError(error, 'invalid_request'));
    assert.match(error.message, /snapgate init/);
    return true;
  });
});
