import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { dataDirectories } from './data-directory.ts';
import { temporaryDirectory } from './testing/terminal.ts';

const place = { env: {}, workingDirectory: '/', homeDirectory: '/home/ann', userId: 1000 };

test('SNAPGATE_DATA alone decides when it is set, relative to the working directory', () => {
  const env = { SNAPGATE_DATA: 'data', XDG_DATA_HOME: '/xdg' };
  assert.deepEqual(dataDirectories({ ...place, env, workingDirectory: '/srv' }), ['/srv/data']);
});

test('an installation keeps its data in /var/lib as root and in the XDG data home otherwise', () => {
  assert.deepEqual(dataDirectories({ ...place, userId: 0 }), ['/var/lib/snapgate']);
  assert.deepEqual(dataDirectories(place), ['/home/ann/.local/share/snapgate']);
  assert.deepEqual(dataDirectories({ ...place, env: { XDG_DATA_HOME: '/xdg' } }), ['/xdg/snapgate']);
});

test('anywhere in a checkout its .snapgate comes first', async (context) => {
  const root = await temporaryDirectory(context);
  const deep = join(root, 'checkout', 'templates', 'examples');
  await mkdir(deep, { recursive: true });
  await writeFile(join(root, 'checkout', 'package.json'), '{"name":"snapgate"}');
  // A package below it must not hide the checkout, nor may one that is broken.
  await writeFile(join(root, 'checkout', 'templates', 'package.json'), '{"name":"other"}');
  await writeFile(join(deep, 'package.json'), 'null');
  assert.deepEqual(dataDirectories({ ...place, workingDirectory: deep }), [
    join(root, 'checkout', '.snapgate'),
    '/home/ann/.local/share/snapgate',
  ]);
  assert.equal(dataDirectories({ ...place, workingDirectory: root }).length, 1);
});
