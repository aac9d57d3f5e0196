import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTextTail, escapeControls } from './text-tail.ts';

test('a tail keeps the newest bytes, however they came', () => {
  const tail = createTextTail(10);
  for (const part of ['0123456789', 'abc', 'defgh', 'x'.repeat(100), '-end']) tail.append(Buffer.from(part));
  assert.equal(tail.text(), 'xxxxxx-end');
  tail.append(Buffer.from('!'));
  assert.equal(tail.text(), 'xxxxx-end!');
});

test('escape sequences and invisible characters are shown, not obeyed', () => {
  assert.equal(
    escapeControls('\x1b[2Ja\x00b\u202ec\td\r\ne\x7f'),
    '\\u{1b}[2Ja\\u{0}b\\u{202e}c\td\ne\\u{7f}',
  );
});
