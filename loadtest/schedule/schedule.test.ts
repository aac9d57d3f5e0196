import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { arrivalsOf } from './arrivals.ts';
import { type ProfileInput, profileDurationMs, profileSchema } from './profile.ts';
import { createRandom } from './random.ts';
import { createProfileSource } from './source.ts';
import { createTargeting } from './targets.ts';

const drawAll = (input: ProfileInput, seed = 1): number[] => [
  ...arrivalsOf(profileSchema.parse(input), {
    gaps: createRandom(seed, 'gaps'),
    dwell: createRandom(seed, 'dwell'),
  }),
];

const profiles = fc.oneof(
  fc.record({
    kind: fc.constant('constant' as const),
    ratePerSecond: fc.double({ min: 0, max: 500, noNaN: true }),
    durationMs: fc.integer({ min: 1, max: 20_000 }),
    spacing: fc.constantFrom('uniform' as const, 'poisson' as const),
  }),
  fc.record({
    kind: fc.constant('ramp' as const),
    fromPerSecond: fc.double({ min: 0, max: 500, noNaN: true }),
    toPerSecond: fc.double({ min: 0, max: 500, noNaN: true }),
    durationMs: fc.integer({ min: 1, max: 20_000 }),
    spacing: fc.constantFrom('uniform' as const, 'poisson' as const),
  }),
  fc.record({
    kind: fc.constant('bursty' as const),
    onPerSecond: fc.double({ min: 0, max: 500, noNaN: true }),
    onMs: fc.integer({ min: 1, max: 2_000 }),
    offMs: fc.integer({ min: 1, max: 2_000 }),
    dwell: fc.constantFrom('fixed' as const, 'exponential' as const),
    durationMs: fc.integer({ min: 1, max: 20_000 }),
  }),
  fc.record({
    kind: fc.constant('diurnal' as const),
    meanPerSecond: fc.double({ min: 0, max: 300, noNaN: true }),
    amplitude: fc.double({ min: 0, max: 1, noNaN: true }),
    periodMs: fc.integer({ min: 100, max: 20_000 }),
    durationMs: fc.integer({ min: 1, max: 20_000 }),
  }),
);

describe('arrivals', () => {
  test('arrivals of every profile are in order, inside the schedule and repeat for the same seed', () => {
    fc.assert(
      fc.property(profiles, fc.integer(), (profile, seed) => {
        const arrivals = drawAll(profile, seed);
        assert.deepEqual(arrivals, drawAll(profile, seed));
        const end = profileDurationMs(profileSchema.parse(profile));
        let last = 0;
        for (const at of arrivals) {
          assert.ok(at >= last && at <= end + 1e-6);
          last = at;
        }
      }),
      { numRuns: 60 },
    );
  });

  test('a constant profile places its arrivals exactly one period apart', () => {
    const arrivals = drawAll({ kind: 'constant', ratePerSecond: 100, durationMs: 1_000 });
    assert.equal(arrivals.length, 100);
    for (const [index, at] of arrivals.entries()) assert.ok(Math.abs(at - index * 10) < 1e-6);
  });

  test('a ramp from 0 to 100 a second over 10 s has 500 arrivals, a quarter of them in the first half', () => {
    const arrivals = drawAll({ kind: 'ramp', fromPerSecond: 0, toPerSecond: 100, durationMs: 10_000 });
    assert.equal(arrivals.length, 500);
    assert.equal(arrivals.filter((at) => at < 5_000).length, 125);
  });

  test('Poisson gaps have mean and deviation of an exponential', () => {
    const arrivals = drawAll({ kind: 'poisson', ratePerSecond: 1_000, durationMs: 60_000 });
    const gaps = arrivals.slice(1).map((at, index) => at - arrivals[index]!);
    const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length;
    const deviation = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length);
    assert.ok(Math.abs(mean - 1) < 0.02, `mean ${mean}`);
    assert.ok(Math.abs(deviation - 1) < 0.03, `deviation ${deviation}`);
  });

  test('a spike is dense only while it lasts', () => {
    const arrivals = drawAll({
      kind: 'spike',
      basePerSecond: 10,
      spikePerSecond: 1_000,
      spikeAtMs: 1_000,
      spikeMs: 500,
      durationMs: 3_000,
    });
    assert.equal(arrivals.filter((at) => at >= 1_000 && at < 1_500).length, 500);
    assert.equal(arrivals.filter((at) => at < 1_000 || at >= 1_500).length, 25);
  });

  test('a burst gives all of its arrivals the same instant', () => {
    const arrivals = drawAll({ kind: 'burst', size: 3, everyMs: 1_000, durationMs: 2_000 });
    assert.deepEqual(arrivals, [0, 0, 0, 1_000, 1_000, 1_000]);
  });
});

describe('targets', () => {
  test('Zipf draws the first of 100 templates as often as its weight says', () => {
    const pick = createTargeting({ kind: 'zipf', exponent: 1 }, 100, createRandom(7, 'targets'));
    let first = 0;
    for (let draw = 0; draw < 50_000; draw++) if (pick() === 0) first += 1;
    const harmonic = Array.from({ length: 100 }, (_, rank) => 1 / (rank + 1)).reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(first / 50_000 - 1 / harmonic) < 0.01);
  });

  test('weights that do not match the templates are refused', () => {
    const random = createRandom(1, 'targets');
    assert.throws(() => createTargeting({ kind: 'weighted', weights: [1] }, 2, random), RangeError);
    assert.throws(() => createTargeting({ kind: 'weighted', weights: [0, 0] }, 2, random), RangeError);
  });
});

describe('sources', () => {
  test('shards together hold each arrival of the whole schedule once', async () => {
    const options = {
      profile: profileSchema.parse({ kind: 'poisson', ratePerSecond: 3_000, durationMs: 5_000 }),
      seed: 3,
      targeting: { kind: 'uniform' as const },
      targets: 5,
    };
    const collect = async (shard?: { index: number; count: number }) => {
      const source = createProfileSource({ ...options, ...(shard === undefined ? {} : { shard }) });
      const rows: string[] = [];
      for (let block = await source.next(); block !== null; block = await source.next()) {
        for (let row = 0; row < block.count; row++) {
          rows.push(`${block.sequence[row]}:${block.atMs[row]}:${block.target[row]}`);
        }
      }
      return rows;
    };
    const whole = await collect();
    const parts = [...(await collect({ index: 0, count: 2 })), ...(await collect({ index: 1, count: 2 }))];
    assert.ok(whole.length > 10_000);
    assert.deepEqual(parts.sort(), whole.sort());
  });
});
