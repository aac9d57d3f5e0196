/** The harness against servers of known behaviour: does it report what happened? */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { Durations } from '../record/histogram.ts';
import { type Result, resultSchema } from '../record/result.ts';
import { invoke } from '../scenario/invoke.ts';
import { answerInvocation, startStub } from '../testing/stub-server.ts';
import { type RunPlanInput, runPlanSchema } from './plan.ts';
import { run } from './runner.ts';

/** A busy test machine must not decide a test: limits are wide where the generator is not what is tested. */
const wideLimits = { lagP99Ms: 1_000, droppedRatio: 0.5 };

async function runAgainst(
  url: string,
  over: Partial<RunPlanInput> & Pick<RunPlanInput, 'loop'>,
): Promise<Result> {
  const plan = runPlanSchema.parse({
    scenario: 'invoke',
    url,
    templates: ['hello'],
    sampleEveryMs: 0,
    limits: wideLimits,
    ...over,
  });
  return resultSchema.parse(await run(plan, invoke));
}

const constant = (ratePerSecond: number, durationMs: number) =>
  ({ kind: 'open', profile: { kind: 'constant', ratePerSecond, durationMs } }) as const;

const latencyOf = (result: Result, metric = 'latency'): Durations =>
  Durations.union(
    result.series
      .filter((series) => series.metric === metric && series.labels.outcome !== 'refused')
      .map((series) => Durations.decode(series.histogram)),
  );

/** Answers at once, but stalls completely from `fromMs` to `toMs` after the first request. */
const stallingServer = (fromMs: number, toMs: number) => {
  let startedAt = Number.NaN;
  return startStub((_request, response) => {
    if (Number.isNaN(startedAt)) startedAt = performance.now();
    const atMs = performance.now() - startedAt;
    const waitMs = atMs >= fromMs && atMs < toMs ? toMs - atMs : 0;
    setTimeout(() => answerInvocation(response), waitMs);
  });
};

describe('coordinated omission', () => {
  test('a 2 s stall at 100 requests a second shows as ~200 samples spread up to 2 s', async () => {
    await using server = await stallingServer(500, 2_500);
    const result = await runAgainst(server.url, { loop: constant(100, 3_500) });
    const latency = latencyOf(result);
    assert.equal(latency.count, 350);
    // Latencies of the stalled fall evenly from 2 s to 0: the shares below are 350 requests minus 200 times the rest.
    const above = (ms: number) => {
      let share = 0;
      for (let percentile = 100; percentile > 0 && latency.percentileMs(percentile) > ms; percentile -= 0.1)
        share += 0.1;
      return (share / 100) * latency.count;
    };
    for (const [ms, expected] of [
      [100, 190],
      [500, 150],
      [1_000, 100],
      [1_500, 50],
    ] as const) {
      assert.ok(Math.abs(above(ms) - expected) <= 25, `${above(ms)} above ${ms} ms, expected ~${expected}`);
    }
    assert.ok(latency.maxMs > 1_900 && latency.maxMs < 2_600, `max ${latency.maxMs}`);
  });

  test('a closed loop against the same stall shows almost none of it, and says that it is closed', async () => {
    await using server = await stallingServer(500, 2_500);
    const result = await runAgainst(server.url, {
      loop: { kind: 'closed', concurrency: 1, durationMs: 3_500 },
    });
    const latency = latencyOf(result);
    assert.equal(result.run.loop, 'closed');
    assert.equal(result.generator.lag, null);
    assert.match(result.run.schedule, /closed loop/);
    assert.ok(latency.count > 100);
    assert.ok(latency.percentileMs(99) < 500, 'the one stalled request hides behind the many quick ones');
    assert.ok(latency.maxMs > 1_900);
  });
});

test('a known latency distribution is reproduced within the error of the histogram and of timers', async () => {
  const steps = [50, 150, 250, 350, 800];
  let next = 0;
  await using server = await startStub((_request, response) => {
    setTimeout(() => answerInvocation(response), steps[next++ % steps.length]);
  });
  const result = await runAgainst(server.url, { loop: constant(200, 2_000) });
  const service = latencyOf(result, 'service');
  assert.equal(service.count, 400);
  for (const [percentile, expected] of [
    [10, 50],
    [30, 150],
    [50, 250],
    [70, 350],
    [90, 800],
  ] as const) {
    const got = service.percentileMs(percentile);
    assert.ok(
      got >= expected - 1 && got < expected + 75,
      `p${percentile}: ${got} ms, expected ${expected} ms`,
    );
  }
});

test('start types and phases are told apart', async () => {
  let next = 0;
  await using server = await startStub((_request, response) => {
    const isReady = next++ % 4 === 0;
    answerInvocation(response, {
      headers: {
        'x-snapgate-start': isReady ? 'ready' : 'reused',
        'x-snapgate-machine': isReady ? `fresh${String(next).padStart(15, '0')}` : 'stub0000000000000000',
        'server-timing': isReady ? 'queue;dur=1, restore;dur=30, exec;dur=2' : 'queue;dur=0, exec;dur=2',
      },
    });
  });
  const result = await runAgainst(server.url, {
    loop: constant(100, 1_000),
    thresholds: ['count(latency{start=ready}) == 25', 'max(restore{start=ready}) <= 30.1ms'],
  });
  assert.deepEqual(
    result.thresholds.map((threshold) => threshold.verdict),
    ['met', 'met'],
  );
  const restore = result.series.find(
    ({ metric, labels }) => metric === 'restore' && labels.start === 'ready',
  );
  assert.equal(restore?.summary.count, 25);
  assert.equal(result.verdict.isPassed, true, result.verdict.reasons.join('; '));
});

test('refusals, failures and timeouts are counted apart, and a timeout is recorded at its limit', async () => {
  let next = 0;
  await using server = await startStub((_request, response) => {
    switch (next++ % 4) {
      case 0:
        return answerInvocation(response);
      case 1:
        return answerInvocation(response, {
          status: 429,
          headers: { 'x-snapgate-error': 'pool/queue_full', 'retry-after': '1' },
        });
      case 2:
        return answerInvocation(response, { status: 500 });
    }
  });
  const result = await runAgainst(server.url, { loop: constant(40, 1_000), timeoutMs: 300 });
  assert.deepEqual(result.outcomes, { ok: 10, refused: 10, failed: 10, timeout: 10 });
  const timeouts = result.series.find(
    ({ metric, labels }) => metric === 'service' && labels.outcome === 'timeout',
  );
  assert.equal(timeouts?.summary.count, 10);
  assert.ok((timeouts?.summary.minMs ?? 0) >= 299);
  assert.deepEqual(
    new Set(result.errors.map(({ code }) => code)),
    new Set(['pool/queue_full', 'function/500', 'transport/timeout']),
  );
});

describe('a run fails', () => {
  test('as "generator was the bottleneck" when arrivals are dropped at the in-flight limit', async () => {
    await using server = await startStub((_request, response) => {
      setTimeout(() => answerInvocation(response), 400);
    });
    const result = await runAgainst(server.url, {
      loop: constant(200, 1_000),
      maxInFlight: 10,
      limits: { lagP99Ms: 1_000, droppedRatio: 0.01 },
    });
    assert.equal(result.verdict.isPassed, false);
    assert.match(result.verdict.reasons[0]!, /generator was the bottleneck/);
    assert.ok(result.generator.droppedInFlight > 100);
    assert.equal(
      result.generator.scheduled,
      result.generator.sent + result.generator.droppedInFlight + result.generator.droppedBehind,
    );
  });

  test('as "generator was the bottleneck" when its own event loop is blocked', async () => {
    await using server = await startStub((_request, response) => {
      const until = performance.now() + 40;
      while (performance.now() < until);
      answerInvocation(response);
    });
    const result = await runAgainst(server.url, {
      loop: constant(100, 500),
      limits: { lagP99Ms: 5, droppedRatio: 0.01 },
    });
    assert.equal(result.verdict.isPassed, false);
    assert.match(result.verdict.reasons[0]!, /generator was the bottleneck: schedule lag/);
  });

  test('before anything is sent when a threshold names an unknown metric', async () => {
    await using server = await startStub((_request, response) => answerInvocation(response));
    await assert.rejects(
      runAgainst(server.url, { loop: constant(10, 500), thresholds: ['p99(latncy) < 50ms'] }),
      (error) => isGatewayError(error, 'invalid_request') && /unknown metric `latncy`/.test(error.message),
    );
    assert.equal(server.received, 0);
  });

  test('when nothing listens at the address', async () => {
    const { url } = await (async () => {
      await using closed = await startStub(() => undefined);
      return closed;
    })();
    await assert.rejects(
      runAgainst(url, { loop: constant(10, 500) }),
      (error) => isGatewayError(error, 'invalid_request') && /nothing answers at/.test(error.message),
    );
  });
});

test('an interrupted run ends at once, keeps what it measured and fails as interrupted', async () => {
  const abort = new AbortController();
  await using server = await startStub((_request, response) => {
    answerInvocation(response);
    if (server.received === 10) abort.abort();
  });
  const plan = runPlanSchema.parse({
    scenario: 'invoke',
    url: server.url,
    templates: ['hello'],
    sampleEveryMs: 0,
    limits: wideLimits,
    loop: constant(50, 3_600_000),
  });
  const result = await run(plan, invoke, { signal: abort.signal });
  assert.equal(result.run.isAborted, true);
  assert.equal(result.outcomes.ok, server.received);
  assert.match(result.verdict.reasons[0]!, /ended before its schedule/);
});

test('the warm-up is sent and left out of every figure', async () => {
  await using server = await startStub((_request, response) => answerInvocation(response));
  const result = await runAgainst(server.url, { loop: constant(50, 1_000), warmupMs: 400 });
  assert.equal(server.received, 50);
  assert.equal(result.generator.warmup, 20);
  assert.equal(result.outcomes.ok, 30);
  assert.equal(latencyOf(result).count, 30);
  assert.equal(
    result.timeline.points.reduce((sum, point) => sum + point.sent, 0),
    30,
  );
});

test('two worker threads and two repeats send each arrival of the schedule once and merge their histograms', async () => {
  await using server = await startStub((_request, response) => answerInvocation(response));
  const result = await runAgainst(server.url, {
    loop: constant(100, 600),
    workers: 2,
    repeats: 2,
    restMs: 0,
  });
  assert.equal(server.received, 120);
  assert.equal(result.outcomes.ok, 120);
  assert.equal(latencyOf(result).count, 120);
  assert.deepEqual(
    result.repeats.map((repeat) => repeat.requests),
    [60, 60],
  );
});
