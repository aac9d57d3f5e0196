import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { SeriesSet } from '../record/series.ts';
import { evaluate, type Measurements } from './evaluate.ts';
import { parseThreshold } from './expression.ts';
import { defaultGeneratorLimits, judgeGenerator } from './saturation.ts';

const vocabulary = { template: ['hello'], name: ['create', 'kill'], check: ['digest'] };
const parse = (text: string) => parseThreshold(text, vocabulary);

function measurements(over: Partial<Measurements> = {}): Measurements {
  return {
    series: new SeriesSet(),
    outcomes: { ok: 98, refused: 1, failed: 1, timeout: 0 },
    errorCounts: new Map([
      ['pool/queue_full', 1],
      ['gateway/internal', 1],
    ]),
    scheduled: 100,
    dropped: 0,
    late: 2,
    measuredMs: 10_000,
    checks: new Map([['digest', { examined: 98, violations: 0 }]]),
    gauges: new Map([['memory_pss_bytes', { min: 1, max: 2 ** 30, mean: 5, last: 7 }]]),
    ...over,
  };
}

describe('a threshold is refused', () => {
  const cases: [string, RegExp][] = [
    ['p99(latencyy) < 50ms', /unknown metric `latencyy`/],
    ['p99(latency{starts=ready}) < 50ms', /no label `starts`/],
    ['p99(latency{start=redy}) < 50ms', /no value `redy`/],
    ['p99(step{name=creat}) < 50ms', /no value `creat`/],
    ['p99(latency) < 50', /something like 50ms/],
    ['p99(latency) < 50MiB', /something like 50ms/],
    ['p99(requests) < 50', /takes count, rate, ratio/],
    ['p101(latency) < 50ms', /unknown function `p101`/],
    ['p0(latency) < 50ms', /unknown function `p0`/],
    ['avg(latency) < 50ms', /unknown function `avg`/],
    ['p99(latency{start=ready,start=reused}) < 5ms', /given twice/],
    ['p99(latency) < -5ms', /write it as/],
    ['', /write it as/],
    ['max(constructor) < 5', /unknown metric/],
    ['p99(latency) < 50toString', /something like/],
  ];
  for (const [text, reason] of cases) {
    test(`\`${text}\` with a message that says what is wrong`, () => {
      assert.throws(
        () => parse(text),
        (error) => isGatewayError(error, 'invalid_request') && reason.test(error.message),
      );
    });
  }
});

describe('a threshold is judged', () => {
  test('by the percentile of just the series it names', () => {
    const series = new SeriesSet();
    for (let sample = 1; sample <= 1_000; sample++) {
      series.at('latency', { start: 'ready', outcome: 'ok' }).record(10);
      series.at('latency', { start: 'spawned', outcome: 'ok' }).record(500);
      series.at('latency', { start: 'ready', outcome: 'refused' }).record(0.1);
    }
    const judge = (text: string) => evaluate(parse(text), measurements({ series }));
    assert.equal(judge('p99(latency{start=ready}) < 50ms').verdict, 'met');
    assert.equal(judge('p99(latency) < 50ms').verdict, 'missed');
    assert.equal(judge('p1(latency) >= 9.9ms').verdict, 'met', 'refusals are not served requests');
    assert.equal(judge('count(latency{start=ready|spawned}) == 2000').verdict, 'met');
  });

  test('as undecided when there are no samples or too few for the percentile', () => {
    const series = new SeriesSet();
    for (let sample = 0; sample < 999; sample++) {
      series.at('latency', { start: 'ready', outcome: 'ok' }).record(1);
    }
    const few = evaluate(parse('p99(latency) < 1s'), measurements({ series }));
    assert.equal(few.verdict, 'undecided');
    assert.match(few.shown, /needs 1000/);
    assert.equal(
      evaluate(parse('p50(latency{start=forked}) < 1s'), measurements({ series })).verdict,
      'undecided',
    );
    assert.equal(evaluate(parse('max(machines) < 5'), measurements()).verdict, 'undecided');
  });

  test('by counts, shares, rates and gauges in their units', () => {
    const judge = (text: string) => evaluate(parse(text), measurements()).verdict;
    assert.equal(judge('count(requests{outcome=refused}) == 1'), 'met');
    assert.equal(judge('ratio(errors) < 1%'), 'missed');
    assert.equal(judge('ratio(errors) <= 1%'), 'met');
    assert.equal(judge('ratio(errors) <= 0.01'), 'met');
    assert.equal(judge('count(errors{code=pool/queue_full}) == 1'), 'met');
    assert.equal(judge('rate(requests) >= 10/s'), 'met');
    assert.equal(judge('ratio(late) > 1%'), 'met');
    assert.equal(judge('count(violations{check=digest}) == 0'), 'met');
    assert.equal(judge('max(memory_pss_bytes) <= 1GiB'), 'met');
    assert.equal(judge('max(memory_pss_bytes) < 1GiB'), 'missed');
  });
});

test('a generator that lags, drops or sends nothing fails its run, and one that keeps the schedule does not', () => {
  const kept = { scheduled: 1_000, droppedInFlight: 10, droppedBehind: 0, lagP99Ms: 4.9 };
  assert.deepEqual(judgeGenerator(kept, defaultGeneratorLimits), []);
  for (const broken of [
    { ...kept, lagP99Ms: 5.1 },
    { ...kept, droppedInFlight: 11 },
    { ...kept, droppedBehind: 11 },
    { ...kept, scheduled: 0, droppedInFlight: 0 },
  ]) {
    assert.equal(judgeGenerator(broken, defaultGeneratorLimits).length, 1);
  }
});
