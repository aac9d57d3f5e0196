import Table from 'cli-table3';
import { visibleText } from '../../sdk/index.ts';
import { formatMs } from '../gate/format.ts';
import type { Result } from '../record/result.ts';
import { caveats, type LatencyRow, latencyRows, stepRows, throughput } from './figures.ts';

/** The result in a terminal, short: verdict, latency table, what was checked, what must be said beside it. */
export function renderTerminal(result: Result): string {
  const { outcomes, generator, run } = result;
  const steps = stepRows(result);
  const dropped = generator.droppedBehind + generator.droppedInFlight;
  const lines = [
    '',
    `${run.scenario}: ${run.schedule}, ${run.loop} loop, seed ${run.plan.seed}`,
    `${outcomes.ok} answered (${throughput(result).toFixed(1)}/s), ${outcomes.refused} refused, ${outcomes.failed} failed, ${outcomes.timeout} timed out, ${dropped} dropped`,
    latencyTable(
      run.loop === 'closed' ? 'closed-loop latency' : 'latency from intended',
      latencyRows(result, 'latency'),
    ),
    ...(steps.length > 0 ? [latencyTable('step', steps)] : []),
    run.loop === 'closed'
      ? 'closed loop: no schedule to be late for'
      : `sent on time: lag p50 ${formatMs(generator.lag?.p50Ms ?? null)}, p99 ${formatMs(generator.lag?.p99Ms ?? null)}, max ${formatMs(generator.lag?.maxMs ?? null)}; own floor p50 ${formatMs(generator.overhead.p50Ms)} (not subtracted)`,
    ...result.checks.map(
      (check) =>
        `${check.violations === 0 ? '✔' : '✘'} ${check.promise}: ${check.violations} violations in ${check.examined}${check.limits === '' ? '' : ` (${check.limits})`}`,
    ),
    ...result.thresholds.map(
      ({ verdict, expression, shown }) => `${verdict === 'met' ? '✔' : '✘'} ${expression}: ${shown}`,
    ),
    ...result.errors
      .slice(0, 10)
      .map(
        (error) =>
          `  ${error.count} × ${error.code} (${error.outcome})${error.firstDetail === '' ? '' : `, first: ${visibleText(error.firstDetail, { lines: 'one' })}`}`,
      ),
    ...caveats(result).map((note) => `note: ${note}`),
    result.verdict.isPassed
      ? 'PASSED'
      : `FAILED\n${result.verdict.reasons.map((reason) => `  - ${reason}`).join('\n')}`,
  ];
  return `${lines.join('\n')}\n`;
}

function latencyTable(title: string, rows: readonly LatencyRow[]): string {
  const table = new Table({
    head: [title, 'count', 'p50', 'p90', 'p95', 'p99', 'p99.9', 'max'],
    style: { head: [], border: [] },
    chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' },
    colAligns: ['left', 'right', 'right', 'right', 'right', 'right', 'right', 'right'],
  });
  for (const { name, summary } of rows) {
    table.push([
      name,
      String(summary.count),
      ...[summary.p50Ms, summary.p90Ms, summary.p95Ms, summary.p99Ms, summary.p999Ms, summary.maxMs].map(
        (ms) => formatMs(ms),
      ),
    ]);
  }
  return table.toString();
}
