import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { settledExchange } from '../testing/settled-exchange.ts';
import { Recorder } from './recorder.ts';
import { Timeline } from './timeline.ts';

const starts = ['ready', 'restored', 'spawned', 'reused'];
const newRecorder = () => new Recorder({ templates: ['hello'], warmupMs: 0 });

function feed(recorder: Recorder, count: number, everyMs: number): void {
  for (let sequence = 0; sequence < count; sequence++) {
    const intendedMs = sequence * everyMs;
    recorder.launched(intendedMs, 0.1);
    recorder.settled(
      settledExchange({
        sequence,
        intendedMs,
        latencyMs: 1 + (sequence % 997),
        start: starts[sequence % 4]!,
      }),
    );
  }
}

test('a week of samples takes no more room than a minute of them', () => {
  const [minute, week] = [newRecorder(), newRecorder()];
  feed(minute, 6_000, 10);
  feed(week, 60_480, 10_000);
  const size = (recorder: Recorder) => JSON.stringify(recorder.snapshot()).length;
  assert.ok(week.timeline.entries().length <= 360);
  assert.ok(week.timeline.entries().length > 180, 'and is still told apart in hundreds of intervals');
  assert.ok(size(week) < 1_500_000, `${size(week)} bytes`);
  assert.equal(minute.outcomes.ok + week.outcomes.ok, 66_480);
});

test('recordings merged from their snapshots equal one recording of everything', () => {
  const [left, right, whole] = [newRecorder(), newRecorder(), newRecorder()];
  feed(left, 3_000, 10);
  feed(right, 5_000, 100);
  feed(whole, 3_000, 10);
  feed(whole, 5_000, 100);
  const merged = newRecorder();
  for (const part of [left, right]) merged.merge(structuredClone(part.snapshot()));
  assert.deepEqual(merged.outcomes, whole.outcomes);
  assert.deepEqual(merged.counters, whole.counters);
  for (const percentile of [1, 50, 99, 100]) {
    assert.equal(
      merged.series.select('latency').percentileMs(percentile),
      whole.series.select('latency').percentileMs(percentile),
    );
  }
  const sum = (recorder: Recorder) =>
    recorder.timeline.entries().reduce((total, cell) => total + cell.outcomes.ok, 0);
  assert.equal(sum(merged), sum(whole));
});

test('a timeline loses no arrival, however long the run grows and in whatever order they settle', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 5_000_000 }), { maxLength: 300 }), (instants) => {
      const timeline = new Timeline();
      for (const at of instants) timeline.launched(at, 0);
      const cells = timeline.entries();
      assert.ok(cells.length <= 360);
      assert.equal(
        cells.reduce((sum, cell) => sum + cell.sent, 0),
        instants.length,
      );
      const fineCount = (from: number, to: number) => instants.filter((at) => at >= from && at < to).length;
      for (const [index, cell] of cells.entries()) {
        assert.equal(cell.sent, fineCount(index * timeline.intervalMs, (index + 1) * timeline.intervalMs));
      }
    }),
    { numRuns: 50 },
  );
});

test('hundreds of error codes end in one bin, none is lost', () => {
  const recorder = newRecorder();
  for (let index = 0; index < 500; index++) {
    recorder.session({
      sequence: index,
      intendedMs: 0,
      sentMs: 0,
      endedMs: 1,
      outcome: 'failed',
      errorCode: `function/${index}`,
      status: 500,
      detail: 'x'.repeat(5_000),
    });
  }
  assert.ok(recorder.errors.size <= 65);
  assert.equal(
    [...recorder.errors.values()].reduce((sum, error) => sum + error.count, 0),
    500,
  );
});
