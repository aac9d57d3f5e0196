/** Listings without borders, easy on `grep` and `awk`. */
import { visibleText } from '../../sdk/index.ts';

/** Columns padded to their widest cell, two spaces apart; cells stay on one line. */
export function renderTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => visibleText(cell, { lines: 'one' })));
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const lines = cells.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  return `${lines.join('\n')}\n`;
}

/** A duration for people: `850 ms`, `12.3 s`, `3 min 5 s`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** An instant in UTC, to the second. */
export const formatInstant = (epochMs: number): string =>
  new Date(epochMs).toISOString().slice(0, 19).replace('T', ' ');

/** Bytes in MiB with one decimal. */
export const formatMiB = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
