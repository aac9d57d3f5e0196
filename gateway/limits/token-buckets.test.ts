import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { systemClock } from '../../sdk/index.ts';
import { createTokenBuckets, rateOf } from './token-buckets.ts';

const stopped = () => {
  const time = { now: 0 };
  return { time, buckets: createTokenBuckets({ clock: { ...systemClock, monotonic: () => time.now } }) };
};

test('a burst passes, then as many as the rate allows, and a refusal says when the next one may', () => {
  const { time, buckets } = stopped();
  const rate = { perSecond: 0.5, burst: 2 };
  const passed = () => buckets.take('a', rate);
  assert.deepEqual([passed().isTaken, passed().isTaken], [true, true]);
  assert.deepEqual(passed(), { isTaken: false, retryAfterSeconds: 2 });
  time.now += 1_000;
  assert.deepEqual(passed(), { isTaken: false, retryAfterSeconds: 1 });
  time.now += 1_000;
  assert.equal(passed().isTaken, true);
  assert.equal(buckets.take('b', rate).isTaken, true, 'each name has a bucket of its own');
});

test('whatever the pattern of requests, no more pass than burst and rate allow', () => {
  fc.assert(
    fc.property(
      fc.double({ min: 0.1, max: 50, noNaN: true }),
      fc.array(fc.integer({ min: 0, max: 500 }), { minLength: 1, maxLength: 300 }),
      (perSecond, gapsMs) => {
        const { time, buckets } = stopped();
        const rate = rateOf(perSecond);
        let passed = 0;
        for (const gapMs of gapsMs) {
          time.now += gapMs;
          if (buckets.take('a', rate).isTaken) passed += 1;
        }
        assert.ok(passed <= rate.burst + (perSecond * time.now) / 1000 + 1e-6, `${passed}`);
      },
    ),
  );
});
