import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseRamMapping } from './ram-mapping.ts';

const file = { inode: 77, bytes: 0x3000 };
const line = (range: string, permissions: string, offset: string, inode = 77) =>
  `${range} ${permissions} ${offset} 08:01 ${inode}    /snapshots/memory.img`;
const other = line('7f0000-7f1000', 'r-xp', '00000000', 5);

test('a file that is mapped whole and privately is found, also in several parts', () => {
  const whole = [other, line('10000-13000', 'rw-p', '00000000'), other].join('\n');
  assert.deepEqual(parseRamMapping(whole, file), { start: 0x10000, bytes: 0x3000 });
  const parts = [line('10000-11000', 'rw-p', '00000000'), line('11000-13000', 'r--p', '00001000')];
  assert.deepEqual(parseRamMapping(parts.join('\n'), file), { start: 0x10000, bytes: 0x3000 });
});

test('one that is shared, cut short, out of order or not there is none', () => {
  const cases = {
    shared: [line('10000-13000', 'rw-s', '00000000')],
    'shared in part': [line('10000-11000', 'rw-p', '00000000'), line('11000-13000', 'rw-s', '00001000')],
    short: [line('10000-12000', 'rw-p', '00000000')],
    'with a gap': [line('10000-11000', 'rw-p', '00000000'), line('12000-14000', 'rw-p', '00002000')],
    'not from its start': [line('10000-13000', 'rw-p', '00001000')],
    twice: [line('10000-13000', 'rw-p', '00000000'), line('20000-23000', 'rw-p', '00000000')],
    absent: [other, 'nonsense', ''],
  };
  for (const [name, lines] of Object.entries(cases))
    assert.equal(parseRamMapping(lines.join('\n'), file), null, name);
});
