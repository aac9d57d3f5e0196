import { formatBytes, formatMs } from '../../gate/format.ts';
import type { Result } from '../../record/result.ts';
import { gauges } from '../../resource/gauges.ts';
import {
  caveats,
  type LatencyRow,
  latencyRows,
  phaseRows,
  resourceRows,
  spread,
  stepRows,
  throughput,
} from '../figures.ts';
import { escapeHtml } from './escape.ts';

/** The page without its charts' data: header, figures, places for charts, tables. */
export function pageBody(result: Result): string {
  return [
    header(result),
    tiles(result),
    reasons(result),
    charts(result),
    tables(result),
    footer(result),
  ].join('\n');
}

function header(result: Result): string {
  const { run, verdict } = result;
  const badge = verdict.isPassed
    ? '<span class="badge passed">passed</span>'
    : '<span class="badge failed">failed</span>';
  return `<header><h1>${escapeHtml(run.scenario)} ${badge}</h1>
<p class="proves">${escapeHtml(run.proves)}</p>
<p class="facts">${escapeHtml(run.schedule)} · ${run.loop} loop · seed ${escapeHtml(String(run.plan.seed))} · ${new Date(run.startedAt).toISOString().replace('T', ' ').slice(0, 19)} UTC</p></header>`;
}

function tiles(result: Result): string {
  const [all] = latencyRows(result, 'latency');
  const summary = all!.summary;
  const { outcomes, generator } = result;
  const bad = (outcomes.failed ?? 0) + (outcomes.timeout ?? 0);
  const violations = result.checks.reduce((sum, check) => sum + check.violations, 0);
  const tile = (title: string, value: string, note: string, tone = '') =>
    `<div class="tile ${tone}"><b>${value}</b><span>${title}</span><small>${note}</small></div>`;
  return `<section class="tiles">${[
    tile('median latency', formatMs(summary.p50Ms), 'from the intended instant'),
    tile('p99', formatMs(summary.p99Ms), `of ${summary.count} served`),
    tile('answered', `${trim(throughput(result))}/s`, `${outcomes.ok} requests`),
    tile('refused', String(outcomes.refused ?? 0), 'by admission'),
    tile('failed', String(bad), 'errors and timeouts', bad > 0 ? 'bad' : ''),
    tile('violations', String(violations), `${result.checks.length} checks`, violations > 0 ? 'bad' : ''),
    tile(
      generator.lag === null || generator.lag.p99Ms !== null ? 'schedule lag p99' : 'schedule lag, highest',
      formatMs(generator.lag?.p99Ms ?? generator.lag?.maxMs ?? null),
      `${generator.droppedBehind + generator.droppedInFlight} arrivals dropped`,
    ),
  ].join('')}</section>`;
}

function reasons(result: Result): string {
  const failed = result.verdict.reasons.map((reason) => `<li class="bad">${escapeHtml(reason)}</li>`);
  const notes = caveats(result).map((note) => `<li>${escapeHtml(note)}</li>`);
  return failed.length + notes.length === 0 ? '' : `<ul class="notes">${[...failed, ...notes].join('')}</ul>`;
}

const chartTitles: readonly (readonly [id: string, title: string, note: string])[] = [
  [
    'latency',
    'Latency over time',
    'median solid, p99 dashed; the highest value where an interval is too thin',
  ],
  ['percentiles', 'Percentiles', 'the tail is drawn as wide as the rest: every nine takes the same room'],
  ['phases', 'Where the time went', 'mean per answer of what the server names, and what nothing explains'],
  ['rates', 'Scheduled and answered', 'arrivals a second'],
  ['refusals', 'Refused, failed, timed out, dropped', 'a second'],
  ['memory', 'Memory', 'sampled from the server'],
  ['machines', 'Machines', 'sampled from the server'],
  ['lag', 'How late the generator sent', 'the worst of each interval; its own fault, never the server’s'],
];

const charts = (result: Result): string =>
  `<section class="charts" data-interval="${result.timeline.intervalMs}">${chartTitles
    .map(
      ([id, title, note]) =>
        `<figure id="chart-${id}" hidden><figcaption><b>${title}</b> <small>${note}</small></figcaption><div class="plot"></div></figure>`,
    )
    .join('\n')}</section>`;

function tables(result: Result): string {
  const steps = stepRows(result);
  const phases = phaseRows(result);
  const resources = resourceRows(result);
  return `<section class="tables">${[
    details('Latency from the intended instant', latencyTable(latencyRows(result, 'latency'))),
    details('Service time from the actual send', latencyTable(latencyRows(result, 'service'))),
    steps.length > 0 ? details('Steps', latencyTable(steps)) : '',
    phases.length > 0 ? details('Phases named by the server', latencyTable(phases)) : '',
    result.thresholds.length > 0
      ? details(
          'Thresholds',
          table(
            ['threshold', 'value', 'verdict'],
            result.thresholds.map((one) => [one.expression, one.shown, one.verdict]),
          ),
        )
      : '',
    result.checks.length > 0
      ? details(
          'Checked while it measured',
          table(
            ['promise', 'examined', 'violations', 'could not see'],
            result.checks.map((one) => [
              one.promise,
              String(one.examined),
              String(one.violations),
              one.limits,
            ]),
          ) + violationTable(result),
        )
      : '',
    result.errors.length > 0
      ? details(
          'Errors',
          table(
            ['code', 'outcome', 'count', 'first request', 'at', 'status', 'detail'],
            result.errors.map((one) => [
              one.code,
              one.outcome,
              String(one.count),
              `#${one.firstSequence}`,
              formatMs(one.firstAtMs),
              String(one.firstStatus),
              one.firstDetail,
            ]),
          ),
        )
      : '',
    result.repeats.length > 1 ? details('Repeats', repeatTable(result)) : '',
    resources.length > 0
      ? details(
          'Server resources',
          table(
            ['resource', 'highest', 'last'],
            resources.map(({ name, title, max, last }) => {
              const show = (value: number) =>
                gauges[name].unit === 'bytes' ? formatBytes(value) : trim(value);
              return [title, show(max), show(last)];
            }),
          ),
        )
      : '',
    details('Generator', generatorTable(result)),
  ].join('\n')}</section>`;
}

function violationTable(result: Result): string {
  const rows = result.checks.flatMap((check) =>
    check.samples.map((sample) => [check.name, sample.request, sample.machine, sample.detail]),
  );
  return rows.length === 0 ? '' : table(['check', 'request', 'machine', 'what was wrong'], rows);
}

function repeatTable(result: Result): string {
  const rows = result.repeats.map((one, index) => [
    `#${index + 1}`,
    String(one.requests),
    formatMs(one.lanes.all?.p50Ms ?? null),
    formatMs(one.lanes.all?.p95Ms ?? null),
    formatMs(one.lanes.all?.p99Ms ?? null),
  ]);
  const over = (pick: (one: Result['repeats'][number]) => number | null) => {
    const found = spread(result.repeats.map(pick));
    return found === null ? '–' : `${formatMs(found.mean)} ± ${formatMs(found.deviation)}`;
  };
  rows.push([
    'mean ± sd',
    '',
    over((one) => one.lanes.all?.p50Ms ?? null),
    over((one) => one.lanes.all?.p95Ms ?? null),
    over((one) => one.lanes.all?.p99Ms ?? null),
  ]);
  return table(['repeat', 'requests', 'p50', 'p95', 'p99'], rows);
}

function generatorTable(result: Result): string {
  const { generator } = result;
  return table(
    ['', 'value'],
    [
      ['sent late (over 5 ms)', `${generator.late} of ${generator.scheduled}`],
      ['dropped at the in-flight limit', String(generator.droppedInFlight)],
      ['dropped as too late', String(generator.droppedBehind)],
      [
        'lag p50 / p99 / max',
        [generator.lag?.p50Ms, generator.lag?.p99Ms, generator.lag?.maxMs]
          .map((ms) => formatMs(ms ?? null))
          .join(' / '),
      ],
      ['CPU per request', `${generator.cpuUsPerRequest} µs`],
      ['event loop busy', `${trim(generator.eventLoopUtilization * 100)} %`],
      [
        'own floor p50 / p99 (not subtracted)',
        `${formatMs(generator.overhead.p50Ms)} / ${formatMs(generator.overhead.p99Ms)}`,
      ],
      ['core taken away by the kernel', `${generator.preemptions} times`],
      ['threads', String(generator.workers)],
    ],
  );
}

function footer(result: Result): string {
  const { environment, run } = result;
  const server = environment.server.map(
    (node) => `node ${node.node} on ${node.accelerator} (${node.reason})`,
  );
  return `<footer>Run ${escapeHtml(run.id)} · ${environment.cores} × ${escapeHtml(environment.cpu)} · ${formatBytes(environment.memoryBytes)} · ${escapeHtml(environment.kernel)} · Node ${escapeHtml(environment.node)} · harness ${escapeHtml(environment.harness)}${environment.revision === null ? '' : ` at ${escapeHtml(environment.revision)}`}${server.map((text) => ` · ${escapeHtml(text)}`).join('')}</footer>`;
}

const latencyTable = (rows: readonly LatencyRow[]): string =>
  table(
    ['', 'count', 'p50', 'p90', 'p95', 'p99', 'p99.9', 'max', 'mean'],
    rows.map(({ name, summary }) => [
      name,
      String(summary.count),
      ...[
        summary.p50Ms,
        summary.p90Ms,
        summary.p95Ms,
        summary.p99Ms,
        summary.p999Ms,
        summary.maxMs,
        summary.meanMs,
      ].map((ms) => formatMs(ms)),
    ]),
  );

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  `<div class="scroll"><table><thead><tr>${head.map((cell) => `<th>${escapeHtml(cell)}</th>`).join('')}</tr></thead><tbody>${rows
    .map((row) => `<tr>${row.map((cell) => `<td>${escapeHtml(cell)}</td>`).join('')}</tr>`)
    .join('')}</tbody></table></div>`;

const details = (title: string, body: string): string =>
  `<details open><summary>${escapeHtml(title)}</summary>${body}</details>`;

const trim = (value: number): string =>
  Math.abs(value) >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
