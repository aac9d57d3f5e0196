import type { Dimension } from './expression.ts';

/** A value with its unit, for people. */
export function formatValue(value: number, dimension: Dimension): string {
  switch (dimension) {
    case 'ms':
      return formatMs(value);
    case 'bytes':
      return formatBytes(value);
    case 'perSecond':
      return `${trim(value)}/s`;
    case 'share':
      return `${trim(value * 100)} %`;
    case 'number':
      return trim(value);
  }
}

/** `840 µs`, `12.4 ms`, `2.03 s`; a dash for nothing. */
export function formatMs(ms: number | null): string {
  if (ms === null || Number.isNaN(ms)) return '–';
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${trim(ms)} ms`;
  return `${trim(ms / 1000)} s`;
}

/** `512 B`, `3.1 MiB`; a dash for nothing. */
export function formatBytes(bytes: number | null): string {
  if (bytes === null || Number.isNaN(bytes)) return '–';
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let scaled = bytes;
  let name = 0;
  while (scaled >= 1024 && name < names.length - 1) {
    scaled /= 1024;
    name += 1;
  }
  return `${trim(scaled)} ${names[name]}`;
}

/** Three digits that mean something, without trailing zeros. */
const trim = (value: number): string =>
  Math.abs(value) >= 100 || Number.isInteger(value)
    ? String(Math.round(value))
    : String(Number(value.toPrecision(3)));
