import type { Result } from '../record/result.ts';

/** The timeline as CSV: one row per interval and lane (start type or step); empty where nothing is known. */
export function renderCsv(result: Result): string {
  const head = [
    'at_ms',
    'lane',
    'count',
    'p50_ms',
    'p95_ms',
    'p99_ms',
    'max_ms',
    'sent',
    'ok',
    'refused',
    'failed',
    'timeout',
    'dropped',
    'max_lag_ms',
    'queue_ms',
    'restore_ms',
    'exec_ms',
    'other_ms',
  ];
  const rows = result.timeline.points.flatMap((point) => {
    const common = [
      point.sent,
      point.outcomes.ok ?? 0,
      point.outcomes.refused ?? 0,
      point.outcomes.failed ?? 0,
      point.outcomes.timeout ?? 0,
      point.dropped,
      point.maxLagMs,
      point.phases?.queueMs ?? null,
      point.phases?.restoreMs ?? null,
      point.phases?.execMs ?? null,
      point.phases?.otherMs ?? null,
    ];
    const lanes = Object.entries(point.latency);
    if (lanes.length === 0) return [[point.atMs, '', 0, null, null, null, null, ...common]];
    return lanes.map(([lane, latency]) => [
      point.atMs,
      lane,
      latency.count,
      latency.p50Ms,
      latency.p95Ms,
      latency.p99Ms,
      latency.maxMs,
      ...common,
    ]);
  });
  return `${[head, ...rows].map((row) => row.map(cell).join(',')).join('\r\n')}\r\n`;
}

/** Quoted after RFC 4180 where needed. */
function cell(value: string | number | null): string {
  if (value === null) return '';
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
