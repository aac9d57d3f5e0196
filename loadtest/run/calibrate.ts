import { fork } from 'node:child_process';
import { once } from 'node:events';
import { invoke } from '../scenario/invoke.ts';
import { runPlanSchema } from './plan.ts';
import { run } from './runner.ts';

/** What the generator can do on this machine. */
export interface Calibration {
  /** The rate that was asked for, and the one that was really answered. */
  readonly ratePerSecond: number;
  readonly answeredPerSecond: number;
  /** How late it sent at 70 % of the rate, milliseconds. */
  readonly lagP50Ms: number | null;
  readonly lagP99Ms: number | null;
  readonly cpuUsPerRequest: number;
  /** How often the kernel took the core from the generator in the second run. */
  readonly preemptions: number;
  readonly loadAverage: number;
}

/** Enough for the rates asked for; opening more costs more than it brings. */
const connections = 64;
const warmupMs = 1_000;

/** Measures the generator against a server that costs nearly nothing, in a process of its own. */
export async function calibrate(options: {
  readonly ratePerSecond: number;
  readonly durationMs: number;
  readonly signal: AbortSignal;
}): Promise<Calibration> {
  const child = fork(new URL('../driver/null-server.ts', import.meta.url));
  try {
    const [port] = (await once(child, 'message', { signal: options.signal })) as [number];
    const at = (ratePerSecond: number) =>
      run(
        runPlanSchema.parse({
          scenario: 'invoke',
          url: `http://127.0.0.1:${port}`,
          templates: ['calibration'],
          sampleEveryMs: 0,
          warmupMs,
          maxConnections: connections,
          loop: {
            kind: 'open',
            profile: { kind: 'constant', ratePerSecond, durationMs: options.durationMs + warmupMs },
          },
        }),
        invoke,
        { signal: options.signal },
      );
    const full = await at(options.ratePerSecond);
    const eased = await at(0.7 * options.ratePerSecond);
    return {
      ratePerSecond: options.ratePerSecond,
      answeredPerSecond: ((full.outcomes.ok ?? 0) * 1000) / full.run.measuredMs,
      lagP50Ms: eased.generator.lag?.p50Ms ?? null,
      lagP99Ms: eased.generator.lag?.p99Ms ?? null,
      cpuUsPerRequest: full.generator.cpuUsPerRequest,
      preemptions: eased.generator.preemptions,
      loadAverage: full.environment.loadAverage,
    };
  } finally {
    if (child.connected) child.disconnect();
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
}
