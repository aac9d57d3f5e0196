import assert from 'node:assert/strict';
import { test } from 'node:test';
import { escapeOutput, tailOf } from './output-text.ts';

test('line ends of any kind of guest become newlines, escape sequences are spelt out', () => {
  assert.equal(escapeOutput('a\u001b[31mred\r\n\tb'), 'a\\e[31mred\n\tb');
});

test('a tail starts at a line where that costs little, and says that it is one', () => {
  assert.equal(tailOf('short', 10), 'short');
  assert.equal(tailOf('first line\nab\nsecond line', 14), '…second line');
  assert.equal(tailOf('x'.repeat(30), 10), `…${'x'.repeat(10)}`);
});
