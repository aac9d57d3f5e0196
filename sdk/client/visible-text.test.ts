import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { visibleText } from './visible-text.ts';

test('an ANSI sequence from a guest is spelled out instead of being obeyed', () => {
  assert.equal(visibleText('\x1b[2J\x1b]0;owned\x07red'), '\\e[2J\\e]0;owned\\x07red');
});

test('an 8-bit control sequence introducer is spelled out too', () => {
  assert.equal(visibleText('\x9b31mred'), '\\x9b31mred');
});

test('text of many lines keeps its newlines and tabs but no carriage returns or backspaces', () => {
  assert.equal(visibleText('a\tb\nc\rd\be'), 'a\tb\nc\\rd\\x08e');
});

test('a log entry stays one line whatever newlines it has', () => {
  assert.equal(visibleText('a\nfake entry\u2028b', { lines: 'one' }), 'a\\nfake entry\\u{2028}b');
});

test('characters that reorder or hide text are spelled out', () => {
  assert.equal(visibleText('a\u202eb\u200bc\u2066d'), 'a\\u{202e}b\\u{200b}c\\u{2066}d');
});

test('ordinary text in any script passes unchanged', () => {
  const text = 'Grüße, 世界 👋🏽 – naïve';
  assert.equal(visibleText(text, { lines: 'one' }), text);
});

test('whatever a guest prints, what is shown has no control character but newline and tab, and one line has none', () => {
  const unit = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.constantFrom('\x1b[2J', '\r\n', '\x9b', '\u2028', '\u202e'),
  );
  fc.assert(
    fc.property(fc.array(unit, { maxLength: 20 }), (parts) => {
      const text = parts.join('');
      assert.doesNotMatch(visibleText(text), /(?![\n\t])\p{Cc}|\p{Zl}|\p{Zp}/u);
      assert.doesNotMatch(visibleText(text, { lines: 'one' }), /\p{Cc}|\p{Zl}|\p{Zp}/u);
      assert.equal(visibleText(visibleText(text)), visibleText(text));
    }),
  );
});
