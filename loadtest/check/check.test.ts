/** Each check against exchanges that break its promise, and against ones that keep it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Exchange } from '../driver/exchange.ts';
import type { CheckName } from './check.ts';
import { FingerprintSet } from './fingerprints.ts';
import { canaryOf, probeId } from './probe.ts';
import { createCheckSuite } from './suite.ts';

const wallClock = () => 1_700_000_000_000;
const digest = (digit: string) => `sha256:${digit.repeat(64)}`;
const run = 'r1';

interface Answer {
  readonly status?: number;
  readonly machine?: string;
  readonly start?: string;
  readonly digest?: string;
  readonly error?: string;
  readonly retryAfter?: string;
  readonly body?: string;
  readonly isCut?: boolean;
}

let random = 0;
const hex = () => (++random).toString(16).padStart(16, '0').padEnd(32, 'a');

/** A settled exchange with the given answer, as the HTTP client would make it. */
function exchange(sequence: number, answer: Answer): Exchange {
  const made = new Exchange(
    { sequence, target: 0, intendedMs: sequence, sentMs: sequence, keepsBody: true },
    () => sequence + 10,
    () => undefined,
  );
  const controller = { aborted: false, paused: false, reason: null, abort() {}, pause() {}, resume() {} };
  if (answer.isCut) {
    made.onResponseError(controller, Object.assign(new Error('cut'), { code: 'ECONNRESET' }));
    return made;
  }
  made.onResponseStart(controller, answer.status ?? 200, {
    'x-snapgate-machine': answer.machine ?? 'm1',
    'x-snapgate-start': answer.start ?? 'reused',
    'x-snapgate-digest': answer.digest ?? digest('0'),
    ...(answer.error === undefined ? {} : { 'x-snapgate-error': answer.error }),
    ...(answer.retryAfter === undefined ? {} : { 'retry-after': answer.retryAfter }),
  });
  made.onResponseData(controller, Buffer.from(answer.body ?? ''));
  made.onResponseEnd();
  return made;
}

const probe = (sequence: number, over: Record<string, unknown> = {}): string =>
  JSON.stringify({
    id: probeId(run, sequence),
    random: hex(),
    clockMs: wallClock(),
    count: sequence + 1,
    canaries: [canaryOf('own')],
    ...over,
  });

/** Violations of each check after the given answers, in order. */
function violations(answers: readonly Answer[], lookedAtAfterMs = 0): Partial<Record<CheckName, number>> {
  let nowMs = 0;
  const suite = createCheckSuite(
    {
      describe: (one) => `#${one.sequence}`,
      // The wall clock moves on with the time that passes before an answer is looked at.
      wallClock: () => wallClock() + lookedAtAfterMs,
      now: () => nowMs,
    },
    {
      expectedDigests: new Map([[0, new Set([digest('0')])]]),
      probe: {
        idFor: (one) => probeId(run, one.sequence),
        canaryFor: () => canaryOf('own'),
        tenants: 1,
        isOurs: (id) => id.startsWith(`${run}-`),
      },
      seesAllRequests: true,
    },
  );
  for (const [sequence, answer] of answers.entries()) {
    const one = exchange(sequence, answer);
    nowMs = one.endedMs + lookedAtAfterMs;
    suite.examine(one);
  }
  return Object.fromEntries(
    suite
      .report()
      .reports.filter((one) => one.violations > 0)
      .map((one) => [one.name, one.violations]),
  );
}

describe('answers that keep every promise', () => {
  test('violate nothing', () => {
    assert.deepEqual(
      violations([
        { start: 'ready', body: probe(0) },
        { body: probe(1) },
        { status: 429, error: 'pool/queue_full', retryAfter: '2', machine: '' },
        { isCut: true },
        // The cut one ran: its count is missing and explained. A machine may remember other runs.
        {
          body: probe(4, {
            count: 4,
            recent: [
              [1, 'other-0'],
              [2, probeId(run, 1)],
              [3, probeId(run, 3)],
            ],
          }),
        },
        // Two answers that overtook each other.
        { body: probe(5, { count: 6 }) },
        { body: probe(6, { count: 5 }) },
      ]),
      {},
    );
  });
});

test('a host too busy to look at an answer for a second does not blame the guest’s clock', () => {
  assert.deepEqual(violations([{ body: probe(0) }, { body: probe(1) }], 1_000), {});
});

describe('a violation is seen', () => {
  const cases: [string, CheckName, Answer[]][] = [
    [
      'when a fresh clone fails its first request',
      'fresh-clone',
      [{ start: 'restored', status: 502, error: 'edge/guest_unreachable' }],
    ],
    [
      'when a machine that was never seen fails without naming its start',
      'fresh-clone',
      [{ start: '', status: 500, machine: 'new' }],
    ],
    [
      'when a machine is called fresh twice',
      'start-type',
      [
        { start: 'ready', body: probe(0) },
        { start: 'ready', body: probe(1) },
      ],
    ],
    ['when the digest is another version’s', 'digest', [{ digest: digest('1'), body: probe(0) }]],
    ['when the digest is missing', 'digest', [{ digest: '', body: probe(0) }]],
    [
      'when a refusal has no integer Retry-After',
      'retry-after',
      [{ status: 503, error: 'edge/node_at_capacity', retryAfter: 'soon', machine: '' }],
    ],
    [
      'when two clones give the same kernel random bytes',
      'random-bytes',
      [
        { body: probe(0, { random: 'f'.repeat(32) }) },
        { machine: 'm2', body: probe(1, { random: 'f'.repeat(32) }) },
      ],
    ],
    [
      'when two clones give the same runtime random bytes',
      'random-bytes',
      [
        { body: probe(0, { runtimeRandom: 'e'.repeat(32) }) },
        { machine: 'm2', body: probe(1, { runtimeRandom: 'e'.repeat(32) }) },
      ],
    ],
    [
      'when the guest’s clock stands where the snapshot was taken',
      'guest-clock',
      [{ body: probe(0, { clockMs: wallClock() - 3_600_000 }) }],
    ],
    ['when the guest’s clock is ahead', 'guest-clock', [{ body: probe(0, { clockMs: wallClock() + 100 }) }]],
    ['when an answer belongs to another request', 'invocations', [{ body: probe(0, { id: 'r1-7' }) }]],
    [
      'when an invocation is answered twice',
      'invocations',
      [{ body: probe(0) }, { body: probe(1) }, { body: probe(2, { count: 2 }) }],
    ],
    [
      'when an invocation ran that nobody was answered',
      'invocations',
      [{ body: probe(0) }, { body: probe(1, { count: 3 }) }],
    ],
    [
      'when a request runs on a second machine, whose answer reached nobody',
      'invocations',
      [{ body: probe(0) }, { machine: 'm2', body: probe(1, { recent: [[1, probeId(run, 0)]] }) }],
    ],
    [
      'when a request runs twice on one machine',
      'invocations',
      [{ body: probe(0) }, { body: probe(1, { count: 3, recent: [[2, probeId(run, 0)]] }) }, { isCut: true }],
    ],
    [
      'when a request was refused and ran all the same',
      'invocations',
      [
        { status: 429, error: 'pool/queue_full', retryAfter: '1', machine: '' },
        { body: probe(1, { recent: [[1, probeId(run, 0)]] }) },
      ],
    ],
    ['when an answer is no probe answer', 'invocations', [{ body: '<html>' }]],
    [
      'when another tenant’s canary is in the body',
      'tenant',
      [{ body: probe(0, { canaries: [canaryOf('other')] }) }],
    ],
    [
      'when another tenant’s canary is in an error page',
      'tenant',
      [{ status: 500, body: `at ${canaryOf('third')}` }],
    ],
  ];
  for (const [when, name, answers] of cases) {
    test(when, () => {
      assert.ok((violations(answers)[name] ?? 0) > 0, JSON.stringify(violations(answers)));
    });
  }
});

test('the set of fingerprints finds each value again, through any growth, and learns no more when full', () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 3_000 }),
      (values) => {
        const set = new FingerprintSet();
        const texts = values.map((value) => value.toString(16).padStart(16, '0'));
        const fresh = texts.filter((text) => set.add(text)).length;
        // 0 and 1 share a slot.
        assert.ok(fresh >= values.length - 1);
        assert.ok(texts.every((text) => !set.add(text)));
      },
    ),
    { numRuns: 20 },
  );
  const full = new FingerprintSet(2);
  const [a, b, c] = [hex(), hex(), hex()];
  assert.ok(full.add(a) && full.add(b) && full.isFull);
  assert.ok(full.add(c) && full.add(c), 'a full set accuses nobody of what it did not learn');
  assert.equal(full.add(a), false);
});

test('values that two generators saw are found', () => {
  const [left, right] = [new FingerprintSet(), new FingerprintSet()];
  const shared = hex();
  for (const set of [left, right]) {
    set.add(shared);
    set.add(hex());
  }
  assert.equal(FingerprintSet.shared([left.values(), right.values()]), 1);
});
