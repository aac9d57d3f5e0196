import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { createLineSplitter } from './qmp-line.ts';

test('lines come out whole however the bytes were cut', () => {
  const line = fc
    .string({ unit: 'grapheme', minLength: 1, maxLength: 20 })
    .map((text) => `${JSON.stringify(text)}`);
  fc.assert(
    fc.property(fc.array(line, { maxLength: 8 }), fc.array(fc.nat(40)), (lines, cuts) => {
      const bytes = Buffer.from(lines.map((text) => `${text}\r\n`).join(''));
      const split = createLineSplitter(1000);
      const out: string[] = [];
      let start = 0;
      for (const cut of [...cuts, bytes.length]) {
        out.push(...split(bytes.subarray(start, start + cut)));
        start += cut;
      }
      assert.deepEqual(out, lines);
    }),
  );
});

test('a line without end is refused at its bound, in one piece or in many', () => {
  assert.throws(() => [...createLineSplitter(10)(Buffer.alloc(11, 'x'))], RangeError);
  const split = createLineSplitter(10);
  assert.deepEqual([...split(Buffer.from('12345'))], []);
  assert.deepEqual([...split(Buffer.from('67890\n'))], ['1234567890']);
  assert.throws(() => {
    for (let index = 0; index < 11; index++) [...split(Buffer.from('x'))];
  }, RangeError);
});
