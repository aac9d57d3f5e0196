import { GatewayError } from '../../sdk/index.ts';
import type { Result } from '../record/result.ts';
import { lanesOf } from '../report/figures.ts';
import { type RatioEstimate, ratioFromRepeats, ratioFromSamples } from './interval.ts';

/**
 * `worse` and `better`: the whole interval lies beyond the bar. `same`: it lies within. `unclear`: it lies across, so the
 * runs don't decide it. `too few`: not enough samples for that percentile.
 */
type ComparisonVerdict = 'worse' | 'better' | 'same' | 'unclear' | 'too few';

/** One figure of two results side by side. */
interface ComparisonRow {
  /** Such as `latency ready p99`. */
  readonly name: string;
  readonly aMs: number | null;
  readonly bMs: number | null;
  readonly estimate: RatioEstimate | null;
  readonly verdict: ComparisonVerdict;
}

export interface Comparison {
  readonly rows: readonly ComparisonRow[];
  /** What makes the comparison weaker than it looks. */
  readonly notes: readonly string[];
  readonly confidence: number;
  readonly bar: number;
}

const percentiles = [
  [50, 'p50Ms'],
  [95, 'p95Ms'],
  [99, 'p99Ms'],
] as const;

/**
 * Compares latencies of two runs of the same schedule. Rejects results that measure different things with
 * `invalid_request`, unless `isForced`.
 */
export function compareResults(
  a: Result,
  b: Result,
  options: { readonly confidence: number; readonly bar: number; readonly isForced: boolean },
): Comparison {
  const differences = differencesOf(a, b);
  if (differences.length > 0 && !options.isForced) {
    throw new GatewayError(
      'invalid_request',
      `the results measure different things: ${differences.join('; ')} (--force compares them all the same)`,
    );
  }
  const [lanesA, lanesB] = [lanesOf(a), lanesOf(b)];
  const rows = lanesA.flatMap(({ lane, kind, durations }) => {
    const other = lanesB.find((one) => one.lane === lane && one.kind === kind);
    if (other === undefined) return [];
    return percentiles.map(([percentile, key]): ComparisonRow => {
      const known = (result: Result) =>
        result.repeats.map((repeat) => repeat.lanes[lane]?.[key] ?? null).filter((value) => value !== null);
      const estimate =
        ratioFromRepeats(known(a), known(b), options.confidence) ??
        ratioFromSamples(durations, other.durations, percentile, options.confidence);
      return {
        name: `${kind === 'step' ? 'step' : 'latency'} ${lane} p${percentile}`,
        aMs: durations.trustedMs(percentile),
        bMs: other.durations.trustedMs(percentile),
        estimate,
        verdict: estimate === null ? 'too few' : judge(estimate, options.bar),
      };
    });
  });
  return { rows, notes: [...differences, ...weaknesses(a, b, rows)], ...options };
}

function judge({ low, high }: RatioEstimate, bar: number): ComparisonVerdict {
  if (low > 1 + bar) return 'worse';
  if (high < 1 - bar) return 'better';
  return low >= 1 - bar && high <= 1 + bar ? 'same' : 'unclear';
}

function differencesOf(a: Result, b: Result): string[] {
  const facts: readonly (readonly [string, (result: Result) => string])[] = [
    ['scenario', (result) => result.run.scenario],
    ['loop', (result) => result.run.loop],
    ['schedule', (result) => result.run.schedule],
    ['templates', (result) => JSON.stringify(result.run.plan.templates)],
    ['scenario options', (result) => JSON.stringify(result.run.plan.scenarioOptions)],
  ];
  return facts.flatMap(([name, pick]) =>
    pick(a) === pick(b) ? [] : [`${name}: ${pick(a)} against ${pick(b)}`],
  );
}

function weaknesses(a: Result, b: Result, rows: readonly ComparisonRow[]): string[] {
  const notes: string[] = [];
  if (a.environment.cpu !== b.environment.cpu || a.environment.cores !== b.environment.cores) {
    notes.push('the runs are from different machines');
  }
  if (a.environment.node !== b.environment.node || a.environment.kernel !== b.environment.kernel) {
    notes.push('Node or kernel differ');
  }
  if (rows.some((row) => row.estimate?.basis === 'samples')) {
    notes.push(
      'some intervals come from one run each: what differs from run to run is not in them (--repeats 3 or more)',
    );
  }
  for (const [name, result] of [
    ['A', a],
    ['B', b],
  ] as const) {
    if (result.verdict.reasons.some((reason) => reason.startsWith('the generator'))) {
      notes.push(`in ${name} the generator was the bottleneck, so its figures can't be trusted`);
    }
  }
  return notes;
}
