import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Durations, samplesNeeded } from './histogram.ts';

const durations = fc.array(fc.double({ min: 0, max: 120_000, noNaN: true }), {
  minLength: 1,
  maxLength: 300,
});

test('a percentile is within 0.1 % of the sample at its rank', () => {
  fc.assert(
    fc.property(durations, fc.integer({ min: 1, max: 99 }), (samples, percentile) => {
      const histogram = new Durations();
      for (const sample of samples) histogram.record(sample);
      const sorted = samples.map((ms) => Math.round(ms * 1000) / 1000).sort((a, b) => a - b);
      const exact = sorted[Math.ceil((percentile / 100) * sorted.length) - 1]!;
      const got = histogram.percentileMs(percentile);
      assert.ok(Math.abs(got - exact) <= exact * 0.001 + 0.001, `${got} against ${exact}`);
    }),
  );
});

test('merging two histograms equals recording into one, and neither text nor merge loses a count', () => {
  fc.assert(
    fc.property(durations, durations, (left, right) => {
      const [a, b, whole] = [new Durations(), new Durations(), new Durations()];
      for (const ms of left) a.record(ms);
      for (const ms of right) b.record(ms);
      for (const ms of [...left, ...right]) whole.record(ms);
      const merged = Durations.union([a, Durations.decode(b.encode())]);
      assert.equal(merged.count, whole.count);
      for (const percentile of [0, 50, 90, 99, 100]) {
        const [got, expected] = [merged.percentileMs(percentile), whole.percentileMs(percentile)];
        assert.ok(
          Math.abs(got - expected) <= expected * 0.001 + 0.001,
          `p${percentile}: ${got}, ${expected}`,
        );
      }
      assert.ok(Math.abs(merged.meanMs - whole.meanMs) < 1e-6 * whole.meanMs + 1e-9);
    }),
    { numRuns: 50 },
  );
});

test('a percentile is withheld until ten samples lie beyond it', () => {
  assert.deepEqual([50, 90, 99, 99.9, 100].map(samplesNeeded), [20, 100, 1_000, 10_000, 1]);
  const histogram = new Durations();
  for (let sample = 0; sample < 999; sample++) histogram.record(1);
  assert.equal(histogram.trustedMs(99), null);
  histogram.record(1);
  assert.equal(histogram.trustedMs(99), 1);
});

test('durations beyond an hour are recorded as an hour and negative ones as zero', () => {
  const histogram = new Durations();
  histogram.record(-3);
  histogram.record(10 * 3_600_000);
  assert.equal(histogram.minMs, 0);
  assert.ok(Math.abs(histogram.maxMs - 3_600_000) < 3_600);
});

test('text that is no histogram is refused', () => {
  for (const text of ['', 'x', '1:', '1:AAAA', ':AAAA']) {
    assert.throws(() => Durations.decode(text), SyntaxError);
  }
});
