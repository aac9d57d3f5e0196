import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { readServerTiming } from './server-timing.ts';

const read = (header: string) => {
  const phases = { queueMs: Number.NaN, restoreMs: Number.NaN, execMs: Number.NaN };
  readServerTiming(header, phases);
  return [phases.queueMs, phases.restoreMs, phases.execMs];
};

test('phases are read in any order, beside other metrics and parameters', () => {
  assert.deepEqual(read('queue;dur=0.1, restore;dur=12, exec;dur=1.25'), [0.1, 12, 1.25]);
  assert.deepEqual(read('db;desc="a";dur=9,exec;desc=x;dur="3",queue;dur=0;x=1'), [0, Number.NaN, 3]);
});

test('what is no finite, non-negative duration is ignored', () => {
  for (const header of [
    'queue',
    'queue;dur=',
    'queue;dur=-1',
    'queue;dur=x',
    'queue,dur=1',
    'queue;dur=1e999',
    '',
    ';,;',
  ]) {
    assert.deepEqual(read(header), [Number.NaN, Number.NaN, Number.NaN], header);
  }
});

test('no text from a function makes it throw or look far', () => {
  fc.assert(fc.property(fc.string({ maxLength: 200 }), (text) => void read(text)));
  assert.deepEqual(read(`${'x'.repeat(5_000)},queue;dur=1`), [Number.NaN, Number.NaN, Number.NaN]);
});
