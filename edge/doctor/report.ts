/** What the doctor says; rendering is the command line's affair. */

/** `warn`: works, but not all of it or not as well. `fail`: machines cannot be built or run until it is fixed. */
export type DoctorStatus = 'ok' | 'warn' | 'fail';

export interface DoctorCheck {
  /** Stable, `[a-z0-9-]+`; unique in a report. */
  readonly id: string;
  readonly title: string;
  readonly status: DoctorStatus;
  /** One sentence for people: what was found, and what follows from it. */
  readonly detail: string;
  /** Exact command that fixes it; absent when nothing has to or can be fixed by a command. */
  readonly fix?: string;
}

export interface DoctorReport {
  readonly checks: readonly DoctorCheck[];
  /** The worst of all checks. */
  readonly status: DoctorStatus;
}

const severity: Readonly<Record<DoctorStatus, number>> = { ok: 0, warn: 1, fail: 2 };

/** The report over checks, in their order. */
export function toReport(checks: readonly DoctorCheck[]): DoctorReport {
  const status = checks.reduce<DoctorStatus>(
    (worst, check) => (severity[check.status] > severity[worst] ? check.status : worst),
    'ok',
  );
  return { checks, status };
}
