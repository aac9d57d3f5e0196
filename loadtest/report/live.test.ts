import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import type { Progress } from '../run/progress.ts';
import { createLiveView } from './live.ts';

const progress = (over: Partial<Progress> = {}): Progress => ({
  atMs: 5_000,
  sent: 50,
  ok: 48,
  refused: 0,
  failed: 0,
  timeouts: 0,
  dropped: 0,
  inFlight: 2,
  p50Ms: 3,
  p99Ms: null,
  ...over,
});

function view(isTTY: boolean) {
  let text = '';
  let nowMs = 0;
  const stream = Object.assign(
    new Writable({
      write(chunk, _encoding, done) {
        text += String(chunk);
        done();
      },
    }),
    { isTTY },
  );
  const live = createLiveView(stream, { title: 'invoke', durationMs: 10_000, now: () => nowMs });
  return {
    live,
    text: () => text,
    pass: (ms: number) => {
      nowMs += ms;
    },
  };
}

test('a terminal is repainted in place: as many lines go up as were painted', () => {
  const { live, text } = view(true);
  live.phase('running');
  live.progress(progress(), 0);
  live.progress(progress({ refused: 3 }), 0);
  assert.ok(text().includes('\u001b[1F\u001b[J'), 'the phase took one line');
  assert.ok(text().includes('\u001b[3F\u001b[J'), 'the progress took three');
  assert.match(text(), /50 %/);
  assert.match(text(), /50 sent, 48 answered, 3 refused, 2 open/);
});

test('a pipe gets a plain line now and then, and no escape codes', () => {
  const { live, text, pass } = view(false);
  live.phase('running');
  for (let tick = 0; tick < 20; tick++) {
    live.progress(progress(), 0);
    pass(500);
  }
  assert.ok(!text().includes('\u001b'));
  assert.equal(text().trim().split('\n').length, 3);
});
