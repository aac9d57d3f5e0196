import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { escapeOutput, tailOf } from './escape.ts';

test('escape sequences are spelt out, newlines and tabs stay', () => {
  assert.equal(escapeOutput('a\u001b[31mred\u0007\r\n\tb\rc'), 'a\\x1b[31mred\\x07\n\tb\\x0dc');
  assert.equal(escapeOutput('\u202eevil\u2066'), '\\u202eevil\\u2066');
  assert.equal(escapeOutput('Grüße, 日本 🎉'), 'Grüße, 日本 🎉');
});

test('no text comes out with a control character but newline and tab', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      assert.doesNotMatch(escapeOutput(text), /[^\P{Cc}\n\t]/u);
    }),
  );
});

test('a tail starts at a line where that costs little, and says that it is one', () => {
  assert.equal(tailOf('short', 10), 'short');
  assert.equal(tailOf('first line\nab\nsecond line', 14), '…second line');
  assert.equal(tailOf('x'.repeat(30), 10), `…${'x'.repeat(10)}`);
});
