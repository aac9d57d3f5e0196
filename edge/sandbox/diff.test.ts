import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareFiles, parseProcesses } from './diff.ts';

test('files are told apart by what their rows say, in order of their paths', () => {
  const before = new Map([
    ['/same', 'file 1'],
    ['/gone', 'file 2'],
    ['/b-changed', 'file 3'],
  ]);
  const after = new Map([
    ['/same', 'file 1'],
    ['/b-changed', 'file 4'],
    ['/a-new', 'file 5'],
  ]);
  assert.deepEqual(compareFiles(before, after), [
    { path: '/a-new', change: 'added' },
    { path: '/b-changed', change: 'changed' },
    { path: '/gone', change: 'removed' },
  ]);
});

test('processes are read whatever name they gave themselves, and lines of another form are left out', () => {
  const fields = Array.from({ length: 30 }, (_, index) => index + 4).join(' ');
  const found = parseProcesses(
    [
      `12 (a) b) (c) S ${fields}\tpython3 main.py `,
      'nonsense',
      `x (y) S ${fields}\tz`,
      '13 (short) S\tq',
      '',
    ].join('\n'),
  );
  assert.deepEqual([...found], [[12, '22 python3 main.py']]);
});
