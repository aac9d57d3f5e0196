import Table from 'cli-table3';
import { visibleText } from '../../sdk/index.ts';

/** One column: its heading and the cell of a row. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => string | number;
  readonly align?: 'left' | 'right';
}

const noBorders = {
  top: '',
  'top-mid': '',
  'top-left': '',
  'top-right': '',
  bottom: '',
  'bottom-mid': '',
  'bottom-left': '',
  'bottom-right': '',
  left: '',
  'left-mid': '',
  mid: '',
  'mid-mid': '',
  right: '',
  'right-mid': '',
  middle: '  ',
};

/** Rows under headings, without borders, so that it is easy on `grep` and `awk`. Cells stay one line. */
export function renderTable<T>(rows: readonly T[], columns: readonly Column<T>[]): string {
  const table = new Table({
    head: columns.map(({ title }) => title),
    colAligns: columns.map(({ align }) => align ?? 'left'),
    chars: noBorders,
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
  });
  for (const row of rows) {
    table.push(columns.map(({ cell }) => visibleText(String(cell(row)), { lines: 'one' })));
  }
  const lines = table.toString().split('\n');
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`;
}

/** How long ago, in its largest unit: `5s`, `12m`, `3h`, `2d`. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** Bytes in binary units with one decimal: `3.1 MiB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value.toFixed(1)} ${units[unit]}`;
}

/** A date and a time of day in UTC, to the second. */
export const formatInstant = (epochMs: number): string =>
  new Date(epochMs).toISOString().slice(0, 19).replace('T', ' ');
