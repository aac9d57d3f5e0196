import { formatBytes, formatMs } from '../gate/format.ts';
import type { Summary } from '../record/histogram.ts';
import type { Result } from '../record/result.ts';
import { gauges } from '../resource/gauges.ts';
import {
  caveats,
  type LatencyRow,
  latencyRows,
  phaseRows,
  resourceRows,
  spread,
  stepRows,
  throughput,
} from './figures.ts';

/** The result as Markdown, for a pull request or a page. Untrusted text (codes, ids) is escaped. */
export function renderMarkdown(result: Result): string {
  const { run, environment, generator, outcomes } = result;
  const sections = [
    `# Load test: ${run.scenario} – ${result.verdict.isPassed ? 'passed' : 'FAILED'}`,
    `${run.proves[0]?.toUpperCase()}${run.proves.slice(1)}.`,
    bullets(result.verdict.reasons.map((reason) => `**${inline(reason)}**`)),
    table(
      ['schedule', 'loop', 'seed', 'answered', 'refused', 'failed', 'timed out', 'dropped', 'answered/s'],
      [
        [
          run.schedule,
          run.loop,
          String(run.plan.seed),
          String(outcomes.ok),
          String(outcomes.refused),
          String(outcomes.failed),
          String(outcomes.timeout),
          String(generator.droppedBehind + generator.droppedInFlight),
          throughput(result).toFixed(1),
        ],
      ],
    ),
    '## Latency from the intended instant',
    latencyTable(latencyRows(result, 'latency')),
    '## Service time from the actual send',
    latencyTable(latencyRows(result, 'service')),
    ...optional('## Steps', latencyTable(stepRows(result)), stepRows(result).length),
    ...optional('## Phases named by the server', latencyTable(phaseRows(result)), phaseRows(result).length),
    ...optional('## Repeats', repeatTable(result), result.repeats.length > 1 ? 1 : 0),
    ...optional('## Thresholds', thresholdTable(result), result.thresholds.length),
    '## Checked while it measured',
    checkTable(result),
    ...optional('## Errors', errorTable(result), result.errors.length),
    ...optional('## Server resources', resourceTable(result), resourceRows(result).length),
    '## Generator',
    generatorTable(result),
    bullets(caveats(result).map(inline)),
    `Run \`${run.id}\`, ${new Date(run.startedAt).toISOString()}, on ${environment.cores} × ${inline(environment.cpu)}, ${inline(environment.kernel)}, Node ${environment.node}, harness ${environment.harness}${environment.revision === null ? '' : ` at ${environment.revision}`}${environment.server.map((node) => `; node ${inline(node.node)} on ${inline(node.accelerator)}`).join('')}.`,
  ];
  return `${sections.filter((section) => section !== '').join('\n\n')}\n`;
}

const summaryColumns = ['count', 'p50', 'p90', 'p95', 'p99', 'p99.9', 'max', 'mean'];

const summaryCells = (summary: Summary): string[] => [
  String(summary.count),
  formatMs(summary.p50Ms),
  formatMs(summary.p90Ms),
  formatMs(summary.p95Ms),
  formatMs(summary.p99Ms),
  formatMs(summary.p999Ms),
  formatMs(summary.maxMs),
  formatMs(summary.meanMs),
];

/** A dash means too few samples for that percentile. */
const latencyTable = (rows: readonly LatencyRow[]): string =>
  table(
    ['', ...summaryColumns],
    rows.map((row) => [row.name, ...summaryCells(row.summary)]),
  );

function repeatTable(result: Result): string {
  const column = (pick: (repeat: Result['repeats'][number]) => number | null) => {
    const found = spread(result.repeats.map(pick));
    return found === null
      ? '–'
      : `${formatMs(found.mean)} ± ${formatMs(found.deviation)} (${(found.variation * 100).toFixed(1)} %)`;
  };
  return table(
    ['repeats', 'p50, mean ± sd (CoV)', 'p95', 'p99'],
    [
      [
        String(result.repeats.length),
        column((one) => one.lanes.all?.p50Ms ?? null),
        column((one) => one.lanes.all?.p95Ms ?? null),
        column((one) => one.lanes.all?.p99Ms ?? null),
      ],
    ],
  );
}

const thresholdTable = (result: Result): string =>
  table(
    ['threshold', 'value', 'verdict'],
    result.thresholds.map(({ expression, shown, verdict }) => [`\`${expression}\``, shown, verdict]),
  );

const checkTable = (result: Result): string =>
  result.checks.length === 0
    ? 'Nothing: sessions check what they do step by step.'
    : table(
        ['promise', 'examined', 'violations', 'could not see'],
        result.checks.map((check) => [
          check.promise,
          String(check.examined),
          String(check.violations),
          check.limits,
        ]),
      );

const errorTable = (result: Result): string =>
  table(
    ['code', 'outcome', 'count', 'first'],
    result.errors.map((error) => [
      error.code,
      error.outcome,
      String(error.count),
      `#${error.firstSequence} at ${formatMs(error.firstAtMs)}, status ${error.firstStatus}${error.firstDetail === '' ? '' : `: ${error.firstDetail}`}`,
    ]),
  );

const resourceTable = (result: Result): string =>
  table(
    ['resource', 'highest', 'last'],
    resourceRows(result).map(({ name, title, max, last }) => {
      const show = (value: number) =>
        gauges[name].unit === 'bytes' ? formatBytes(value) : String(Math.round(value * 100) / 100);
      return [title, show(max), show(last)];
    }),
  );

function generatorTable(result: Result): string {
  const { generator } = result;
  return table(
    [
      'sent late',
      'lag p50',
      'lag p99',
      'lag max',
      'CPU per request',
      'event loop busy',
      'own floor p50 / p99',
    ],
    [
      [
        `${generator.late} of ${generator.scheduled}`,
        formatMs(generator.lag?.p50Ms ?? null),
        formatMs(generator.lag?.p99Ms ?? null),
        formatMs(generator.lag?.maxMs ?? null),
        `${generator.cpuUsPerRequest} µs`,
        `${(generator.eventLoopUtilization * 100).toFixed(0)} %`,
        `${generator.preemptions} times`,
        `${formatMs(generator.overhead.p50Ms)} / ${formatMs(generator.overhead.p99Ms)}`,
      ],
    ],
  );
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return '';
  const line = (cells: readonly string[]) => `| ${cells.map(cellText).join(' | ')} |`;
  return [line(head), `|${head.map(() => ' --- ').join('|')}|`, ...rows.map(line)].join('\n');
}

/** Within backticks nothing but the bar of the table needs care. */
const cellText = (text: string): string =>
  text.startsWith('`') ? text.replaceAll('|', '\\|') : inline(text);

const optional = (title: string, body: string, count: number): string[] => (count > 0 ? [title, body] : []);
const bullets = (lines: readonly string[]): string => lines.map((line) => `- ${line}`).join('\n');

/** Error codes and ids come from servers and guests. */
const inline = (text: string): string =>
  text
    .replaceAll(/[\r\n]+/g, ' ')
    .replaceAll('|', '\\|')
    .replaceAll('<', '&lt;');
