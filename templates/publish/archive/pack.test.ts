import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmod, link, mkdir, mkdtemp, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { list, type ReadEntry } from 'tar';
import { isGatewayError } from '../../../sdk/index.ts';
import { parseDefinition, type TemplateDefinitionInput } from '../../definition/index.ts';
import { packTemplate } from './pack.ts';

async function folderWith(context: TestContext, files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'snapgate-pack-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
  return folder;
}

const definitionOf = (copy: TemplateDefinitionInput['copy']) => parseDefinition({ name: 'hello', copy });

async function packed(folder: string, copy: TemplateDefinitionInput['copy']): Promise<Buffer> {
  return buffer(await packTemplate(folder, definitionOf(copy)));
}

async function namesIn(archive: Buffer): Promise<string[]> {
  const names: string[] = [];
  const reader = list({ onReadEntry: (entry: ReadEntry) => names.push(`${entry.type} ${entry.path}`) });
  const ended = new Promise((resolve) => reader.on('end', resolve));
  reader.end(archive);
  await ended;
  return names;
}

const refusedAt = (field: string, text: RegExp) => (error: unknown) => {
  assert.ok(isGatewayError(error, 'invalid_definition'), String(error));
  assert.equal(error.details.field, field);
  assert.match(error.message, text);
  return true;
};

test('only the definition and what is copied are packed', async (context) => {
  const folder = await folderWith(context, {
    'app/main.py': '1',
    'app/lib/a.py': '2',
    'secret.env': 'x',
    'template.json': '{ "name" : "hello" }',
    'single.txt': '3',
  });
  const archive = await packed(folder, [
    { from: 'app', to: '/app' },
    { from: './single.txt', to: '/etc/single.txt' },
  ]);
  assert.deepEqual(await namesIn(archive), [
    'File template.json',
    'Directory app/',
    'Directory app/lib/',
    'File app/lib/a.py',
    'File app/main.py',
    'File single.txt',
  ]);
});

test('a copy of the whole folder holds the normalised definition once', async (context) => {
  const folder = await folderWith(context, { 'template.json': '{}', 'a.txt': '1' });
  const names = await namesIn(await packed(folder, [{ from: '.', to: '/app' }]));
  assert.deepEqual(names, ['File template.json', 'File a.txt']);
});

test('the archive does not depend on times, the order of creation, hard links or group permissions', async (context) => {
  const one = await folderWith(context, { 'app/a': '1', 'app/b': '1', 'app/run.sh': '2' });
  await chmod(join(one, 'app/run.sh'), 0o755);
  const two = await folderWith(context, { 'app/run.sh': '2', 'app/b': '1' });
  await link(join(two, 'app/b'), join(two, 'app/a'));
  await chmod(join(two, 'app/run.sh'), 0o700);
  await chmod(join(two, 'app/b'), 0o664);
  await utimes(join(two, 'app/b'), 1, 1);
  const digestOf = async (folder: string) =>
    createHash('sha256')
      .update(await packed(folder, [{ from: 'app', to: '/app' }]))
      .digest('hex');
  assert.equal(await digestOf(one), await digestOf(two));
});

test('names of any length and script survive', async (context) => {
  const long = `app/${'deep/'.repeat(30)}${'n'.repeat(200)}.txt`;
  const folder = await folderWith(context, { [long]: '1', 'app/日本 語.txt': '2' });
  const names = await namesIn(await packed(folder, [{ from: 'app', to: '/app' }]));
  assert.ok(names.includes(`File ${long}`));
  assert.ok(names.includes('File app/日本 語.txt'));
});

test('a source that is missing names the field', async (context) => {
  const folder = await folderWith(context, { 'a.txt': '1' });
  const copy = [
    { from: 'a.txt', to: '/a' },
    { from: 'nowhere/deep', to: '/b' },
  ];
  await assert.rejects(packed(folder, copy), refusedAt('copy.1.from', /found nothing at nowhere/));
});

test('a link that leads out of the folder is refused, one inside is packed as a link', async (context) => {
  const folder = await folderWith(context, { 'app/a.txt': '1' });
  await symlink('a.txt', join(folder, 'app/inside'));
  const names = await namesIn(await packed(folder, [{ from: 'app', to: '/app' }]));
  assert.ok(names.includes('SymbolicLink app/inside'));
  await symlink('../../etc/passwd', join(folder, 'app/outside'));
  await assert.rejects(
    packed(folder, [{ from: 'app', to: '/app' }]),
    refusedAt('copy.0.from', /app\/outside .* out of/),
  );
});

test('a source that is itself reached through a link is refused', async (context) => {
  const folder = await folderWith(context, { 'real/a.txt': '1' });
  await symlink('real', join(folder, 'app'));
  await assert.rejects(
    packed(folder, [{ from: 'app/a.txt', to: '/a' }]),
    refusedAt('copy.0.from', /symbolic link/),
  );
});

test('a file that shrinks while it is read fails the pack instead of sending garbage', async (context) => {
  const folder = await folderWith(context, { 'app/a': 'x'.repeat(1000), other: 'short' });
  const stream = await packTemplate(folder, definitionOf([{ from: 'app', to: '/app' }]));
  await rename(join(folder, 'other'), join(folder, 'app/a'));
  await assert.rejects(buffer(stream), /changed while it was read/);
});

test('limits on number and size are checked before anything is sent', async (context) => {
  const folder = await folderWith(context, { 'app/a': '12345', 'app/b': '12345' });
  const definition = definitionOf([{ from: 'app', to: '/app' }]);
  const limits = { archiveBytes: 1000, contentBytes: 1000, entries: 100, pathBytes: 1000, depth: 10 };
  await assert.rejects(packTemplate(folder, definition, { ...limits, entries: 2 }), /more than 2 files/);
  await assert.rejects(
    packTemplate(folder, definition, { ...limits, contentBytes: 9 }),
    /larger than 9 bytes/,
  );
});
