import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isGatewayError } from '../sdk/index.ts';
import { checkPoolOptions } from './options.ts';
import { createWorld, nothingLeft, plainOptions } from './test-world.ts';
import { type FloorWindow, floorAt } from './windows.ts';

const at = (text: string) => Date.parse(`2026-11-${text}Z`);
const hour = 3_600_000;
// 30 November 2026 is a Monday.
const office: FloorWindow = {
  days: ['mon', 'tue', 'wed', 'thu', 'fri'],
  from: '08:00',
  to: '18:00',
  ready: 5,
};

test('the floor is higher from the begin to the end of a window, and only on its days', () => {
  assert.deepEqual(floorAt(1, [office], at('30T07:59')), { ready: 1, forMs: 60_000 });
  assert.deepEqual(floorAt(1, [office], at('30T08:00')), { ready: 5, forMs: 10 * hour });
  assert.deepEqual(floorAt(1, [office], at('30T18:00')), { ready: 1, forMs: 14 * hour });
  assert.equal(floorAt(1, [office], at('29T12:00')).ready, 1, 'a Sunday');
  assert.deepEqual(floorAt(3, [], at('29T12:00')), { ready: 3, forMs: Number.POSITIVE_INFINITY });
});

test('a window over midnight belongs to the day on which it begins, and one of 24 hours never ends', () => {
  const night: FloorWindow = { days: ['sun'], from: '22:00', to: '06:00', ready: 4 };
  assert.equal(floorAt(0, [night], at('30T05:59')).ready, 4);
  assert.equal(floorAt(0, [night], at('30T06:00')).ready, 0);
  assert.equal(floorAt(0, [night], at('30T23:00')).ready, 0);
  const always: FloorWindow = { from: '00:00', to: '00:00', ready: 2 };
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 14 * 24 * hour }), (ms) => floorAt(0, [always], ms).ready === 2),
  );
});

test('nothing changes before the time said', () => {
  const windows: FloorWindow[] = [office, { from: '17:30', to: '08:15', ready: 2, days: ['fri', 'sat'] }];
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 14 * 24 * hour }),
      fc.double({ min: 0, max: 0.999, noNaN: true }),
      (offset, share) => {
        const now = at('23T00:00') + offset;
        const { ready, forMs } = floorAt(1, windows, now);
        assert.equal(floorAt(1, windows, Math.floor(now + forMs * share)).ready, ready);
      },
    ),
  );
});

test('a pool makes its machines when a window begins, by itself, and lets them go after it', async () => {
  // The virtual clock starts at 22:13:20.
  const windows: FloorWindow[] = [{ from: '22:15', to: '23:15', ready: 5 }];
  const { pool, clock, end } = createWorld({ pool: { ready: 1, blank: 0, max: 8, windows } });
  const minute = 60_000;
  await clock.advance(minute);
  assert.equal(pool.stats().machines.ready, 1);
  await clock.advance(2 * minute);
  assert.deepEqual([pool.stats().machines.ready, pool.stats().sizing.ready], [5, 5]);
  assert.equal(pool.shed(3, ['ready']), 0, 'the floor of the window is not shed');
  await clock.advance(hour);
  assert.equal(pool.stats().machines.ready, 1);
  assert.deepEqual(await end(), nothingLeft);
});

test('a window that is no time of day, or asks for more than the pool may hold, names its field', () => {
  for (const [field, window] of [
    ['pool.windows.0.from', { from: '8:00', to: '09:00', ready: 1 }],
    ['pool.windows.0.to', { from: '08:00', to: '24:00', ready: 1 }],
    ['pool.windows.0.ready', { from: '08:00', to: '09:00', ready: 99 }],
  ] as const) {
    assert.throws(
      () => checkPoolOptions({ ...plainOptions, windows: [window] }),
      (error: unknown) => isGatewayError(error, 'invalid_definition') && error.details.field === field,
    );
  }
});
