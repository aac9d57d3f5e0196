import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { Durations } from '../record/histogram.ts';
import { createRandom } from '../schedule/random.ts';
import { sampleResult } from '../testing/sample-result.ts';
import { compareResults } from './compare.ts';
import { ratioFromRepeats, studentQuantile } from './interval.ts';

/** Log-normal latencies around `medianMs`. */
function latencies(medianMs: number, count: number, seed: number): Durations {
  const random = createRandom(seed, 'compare');
  const durations = new Durations();
  for (let sample = 0; sample < count; sample++) {
    const gaussian =
      Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform());
    durations.record(medianMs * Math.exp(0.3 * gaussian));
  }
  return durations;
}

const options = { confidence: 0.95, bar: 0.1, isForced: false };
const verdictOf = (a: Durations, b: Durations, percentile: number) =>
  compareResults(sampleResult({ latency: a }), sampleResult({ latency: b }), options).rows.find(
    (row) => row.name === `latency all p${percentile}`,
  )?.verdict;

describe('two runs', () => {
  test('are worse, better or the same when their intervals say so', () => {
    const a = latencies(10, 20_000, 1);
    assert.equal(verdictOf(a, latencies(13, 20_000, 2), 50), 'worse');
    assert.equal(verdictOf(a, latencies(7, 20_000, 2), 99), 'better');
    assert.equal(verdictOf(a, latencies(10, 20_000, 2), 50), 'same');
  });

  test('are unclear when the interval lies across the bar, and too few when samples lack', () => {
    assert.equal(verdictOf(latencies(10, 60, 1), latencies(11, 60, 2), 50), 'unclear');
    assert.equal(verdictOf(latencies(10, 60, 1), latencies(30, 60, 2), 99), 'too few');
  });

  test('of different schedules are refused, unless forced', () => {
    const a = sampleResult({ schedule: 'constant 10/s for 1 s' });
    const b = sampleResult({ schedule: 'constant 20/s for 1 s' });
    assert.throws(
      () => compareResults(a, b, options),
      (error) => isGatewayError(error, 'invalid_request') && /schedule: constant 10/.test(error.message),
    );
    assert.ok(compareResults(a, b, { ...options, isForced: true }).notes.length > 0);
  });
});

test('at 95 % confidence the interval over repeats misses the true ratio in about one of twenty tries', () => {
  const random = createRandom(5, 'coverage');
  const draw = () => {
    const gaussian =
      Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform());
    return 10 * Math.exp(0.2 * gaussian);
  };
  let missed = 0;
  for (let trial = 0; trial < 2_000; trial++) {
    const estimate = ratioFromRepeats(
      [draw(), draw(), draw(), draw()],
      [draw(), draw(), draw(), draw()],
      0.95,
    );
    if (estimate!.low > 1 || estimate!.high < 1) missed += 1;
  }
  assert.ok(missed > 60 && missed < 140, `${missed} of 2000`);
});

test('quantiles of Student’s distribution agree with the printed tables', () => {
  for (const [probability, freedom, expected] of [
    [0.975, 3, 3.182],
    [0.975, 10, 2.228],
    [0.95, 5, 2.015],
    [0.975, 1_000, 1.962],
  ] as const) {
    const got = studentQuantile(probability, freedom);
    assert.ok(Math.abs(got - expected) < 0.04, `${got}, expected ${expected}`);
  }
});
