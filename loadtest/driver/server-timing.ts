/** Phases that the gateway reports for an invocation, milliseconds; `NaN` where the answer names none. */
export interface ServerPhases {
  queueMs: number;
  restoreMs: number;
  execMs: number;
}

/**
 * Reads `queue;dur=0.1, restore;dur=0, exec;dur=1.2` into `phases`. Other metrics and other parameters are skipped, so
 * a function may add its own; values that are no finite, non-negative numbers are ignored.
 */
export function readServerTiming(header: string, phases: ServerPhases): void {
  // A function may send this header too: bound what is looked at. No arrays: this runs for every answer.
  const end = Math.min(header.length, maxHeaderLength);
  for (let from = 0; from < end; ) {
    const comma = header.indexOf(',', from);
    const to = comma === -1 || comma > end ? end : comma;
    readMetric(header, from, to, phases);
    from = to + 1;
  }
}

const maxHeaderLength = 1024;

function readMetric(header: string, from: number, to: number, phases: ServerPhases): void {
  const semicolon = header.indexOf(';', from);
  if (semicolon === -1 || semicolon >= to) return;
  const key = phaseKeys[header.slice(from, semicolon).trim()];
  if (key === undefined) return;
  const at = header.indexOf('dur=', semicolon);
  if (at === -1 || at >= to) return;
  const next = header.indexOf(';', at);
  const text = header.slice(at + 4, next === -1 || next > to ? to : next).trim();
  const value = Number(text.startsWith('"') ? text.slice(1, -1) : text);
  if (text !== '' && Number.isFinite(value) && value >= 0) phases[key] = value;
}

const phaseKeys: Readonly<Record<string, keyof ServerPhases | undefined>> = Object.freeze({
  __proto__: null as never,
  queue: 'queueMs',
  restore: 'restoreMs',
  exec: 'execMs',
});
