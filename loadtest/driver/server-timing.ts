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
  // A function may send this header too: bound what is looked at.
  for (const metric of header.slice(0, 1024).split(',')) {
    const [name, ...parameters] = metric.split(';');
    const key = phaseKeys[name!.trim()];
    if (key === undefined) continue;
    for (const parameter of parameters) {
      const text = parameter.trim();
      if (!text.startsWith('dur=')) continue;
      const value = Number(text.slice(4).replaceAll('"', ''));
      if (Number.isFinite(value) && value >= 0) phases[key] = value;
    }
  }
}

const phaseKeys: Readonly<Record<string, keyof ServerPhases | undefined>> = Object.freeze({
  __proto__: null as never,
  queue: 'queueMs',
  restore: 'restoreMs',
  exec: 'execMs',
});
