import type { Exchange } from '../driver/exchange.ts';
import type { Check, CheckReport } from './check.ts';
import {
  createDigestCheck,
  createFreshCloneCheck,
  createRetryAfterCheck,
  createStartTypeCheck,
} from './header-checks.ts';
import { createInvocationsCheck } from './invocations.ts';
import { readProbe } from './probe.ts';
import {
  createGuestClockCheck,
  createRandomBytesCheck,
  createTenantCheck,
  type HostClocks,
} from './probe-checks.ts';

/** How far a guest's clock may be off, from DESIGN: 50 ms. */
export const clockBoundMs = 50;

/** All checks of one generator. */
export interface CheckSuite {
  /** True when bodies must be kept. */
  readonly readsBodies: boolean;
  examine(exchange: Exchange): void;
  report(): { readonly reports: readonly CheckReport[]; readonly fingerprints: BigUint64Array };
}

/** Header checks always; those that need the probe function when `probe` is given. */
export function createCheckSuite(
  deps: HostClocks & { readonly describe: (exchange: Exchange) => string },
  options: {
    readonly expectedDigests: ReadonlyMap<number, ReadonlySet<string>>;
    readonly probe: {
      readonly idFor: (exchange: Exchange) => string;
      readonly canaryFor: (exchange: Exchange) => string;
      readonly tenants: number;
      /** Told from those of other runs, which a machine may remember. */
      readonly isOurs: (id: string) => boolean;
    } | null;
    /** False when other generators send to the same templates, so that some counts can't be complete. */
    readonly seesAllRequests: boolean;
  },
): CheckSuite {
  const { describe } = deps;
  const headerChecks: Check[] = [
    createFreshCloneCheck(describe),
    createStartTypeCheck(describe, options),
    createDigestCheck(describe, options.expectedDigests),
    createRetryAfterCheck(describe),
  ];
  if (options.probe === null) {
    return {
      readsBodies: false,
      examine(exchange) {
        for (const check of headerChecks) check.examine(exchange, null);
      },
      report: () => ({
        reports: headerChecks.map((check) => check.report()),
        fingerprints: new BigUint64Array(0),
      }),
    };
  }
  const { idFor, canaryFor, tenants, isOurs } = options.probe;
  const random = createRandomBytesCheck(describe);
  const invocations = createInvocationsCheck(describe, idFor, {
    seesAllRequests: options.seesAllRequests,
    isOurs,
  });
  const checks: Check[] = [
    ...headerChecks,
    random,
    createGuestClockCheck(describe, clockBoundMs, deps),
    invocations,
    createTenantCheck(describe, canaryFor, tenants),
  ];
  return {
    readsBodies: true,
    examine(exchange) {
      const probe = exchange.outcome === 'ok' ? readProbe(exchange.bodyText) : null;
      if (typeof probe === 'string') invocations.unreadable(exchange, probe);
      for (const check of checks) check.examine(exchange, typeof probe === 'string' ? null : probe);
    },
    report: () => ({
      reports: checks.map((check) => check.report()),
      fingerprints: random.fingerprints(),
    }),
  };
}
