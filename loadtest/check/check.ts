import type { Exchange } from '../driver/exchange.ts';
import type { ProbeAnswer } from './probe.ts';

/** What is checked while a run measures. A violation of any of them fails the run. */
export const checkNames = {
  'fresh-clone': 'the first request of each fresh clone succeeds',
  'start-type': 'a machine that answered before is never called fresh',
  digest: 'every answer comes from the expected version, and a version has one digest',
  'retry-after': 'every 429 and 503 carries an integer Retry-After',
  'random-bytes': 'no two answers hold the same random bytes, neither of the kernel nor of the runtime',
  'guest-clock': 'the clock of the guest is right when it answers',
  invocations: 'each answer belongs to its request, and no invocation is lost or run twice',
  idempotency: 'a request that is repeated under its key gets its first answer again',
  tenant: 'no answer holds a byte of another tenant',
} as const;
export type CheckName = keyof typeof checkNames;

/** One violation with the request that showed it. */
export interface Violation {
  readonly sequence: number;
  /** Milliseconds from the start of the schedule, when it was intended. */
  readonly atMs: number;
  readonly request: string;
  readonly machine: string;
  readonly detail: string;
}

/** What a check saw. `limits` says in words what it could not see; empty when it saw everything. */
export interface CheckReport {
  readonly name: CheckName;
  readonly examined: number;
  readonly violations: number;
  readonly limits: string;
  /** The first few violations. */
  readonly samples: readonly Violation[];
}

/** Looks at every settled exchange, the warm-up's too. Bounded in memory; never throws. */
export interface Check {
  readonly name: CheckName;
  /** `probe` is what the probe function answered; `null` without one. */
  examine(exchange: Exchange, probe: ProbeAnswer | null): void;
  /** Called once, when everything has settled. */
  report(): CheckReport;
}

/** Violations kept to be shown; the others are counted. */
const maxSamples = 10;

/** Counts examined answers and violations for one check. */
export class Tally {
  private examined = 0;
  private violations = 0;
  private readonly samples: Violation[] = [];
  private readonly name: CheckName;
  private readonly describe: (exchange: Exchange) => string;

  /** `describe` names the request of an exchange, such as `GET /fn/hello/`. */
  constructor(name: CheckName, describe: (exchange: Exchange) => string) {
    this.name = name;
    this.describe = describe;
  }

  saw(): void {
    this.examined += 1;
  }

  violated(exchange: Exchange, detail: string): void {
    this.add({
      sequence: exchange.sequence,
      atMs: Math.round(exchange.intendedMs),
      request: this.describe(exchange),
      machine: exchange.machine,
      detail,
    });
  }

  /** A violation that no single exchange shows. */
  add(violation: Violation): void {
    this.violations += 1;
    if (this.samples.length < maxSamples) this.samples.push(violation);
  }

  report(limits = ''): CheckReport {
    return {
      name: this.name,
      examined: this.examined,
      violations: this.violations,
      limits,
      samples: this.samples,
    };
  }
}

/** Reports of the same check from several generators or repeats, as one. */
export function mergeReports(reports: readonly CheckReport[]): CheckReport[] {
  const byName = new Map<CheckName, CheckReport>();
  for (const report of reports) {
    const known = byName.get(report.name);
    byName.set(
      report.name,
      known === undefined
        ? report
        : {
            name: report.name,
            examined: known.examined + report.examined,
            violations: known.violations + report.violations,
            limits: known.limits || report.limits,
            samples: [...known.samples, ...report.samples].slice(0, maxSamples),
          },
    );
  }
  return [...byName.values()];
}
