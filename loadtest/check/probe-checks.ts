import type { Exchange } from '../driver/exchange.ts';
import { type Check, Tally } from './check.ts';
import { FingerprintSet } from './fingerprints.ts';
import { canaryPattern } from './probe.ts';

type Describe = (exchange: Exchange) => string;

/** No random bytes come twice, in any answer of any clone: neither the kernel's nor the runtime's. */
export function createRandomBytesCheck(describe: Describe): Check & { fingerprints(): BigUint64Array } {
  const tally = new Tally('random-bytes', describe);
  const kernel = new FingerprintSet();
  const runtime = new FingerprintSet();
  return {
    name: 'random-bytes',
    fingerprints: () => kernel.values(),
    examine(exchange, probe) {
      if (probe === null) return;
      tally.saw();
      if (!kernel.add(probe.random)) {
        tally.violated(exchange, `kernel random bytes ${probe.random.slice(0, 16)}… were given before`);
      }
      if (probe.runtimeRandom !== undefined && !runtime.add(probe.runtimeRandom)) {
        tally.violated(exchange, `runtime random ${probe.runtimeRandom.slice(0, 16)}… was given before`);
      }
    },
    report: () =>
      tally.report(
        kernel.isFull ? 'the memory for random bytes filled up; later ones were only looked up' : '',
      ),
  };
}

/** Both clocks of this host. `now` is that of the exchanges. */
export interface HostClocks {
  /** Epoch milliseconds. */
  readonly wallClock: () => number;
  /** Milliseconds from the start of the schedule. */
  readonly now: () => number;
}

/** The guest's clock, read between send and answer, lies between them, give or take `boundMs`. */
export function createGuestClockCheck(describe: Describe, boundMs: number, clocks: HostClocks): Check {
  const tally = new Tally('guest-clock', describe);
  return {
    name: 'guest-clock',
    examine(exchange, probe) {
      if (probe === null) return;
      tally.saw();
      // It is looked at some time after it settled; on a busy host that time is longer than the bound.
      const receivedAt = clocks.wallClock() - (clocks.now() - exchange.endedMs);
      const sentAt = receivedAt - exchange.serviceMs;
      const early = sentAt - boundMs - probe.clockMs;
      const late = probe.clockMs - receivedAt - boundMs;
      if (early > 0) tally.violated(exchange, `the guest's clock is ${Math.ceil(early + boundMs)} ms behind`);
      if (late > 0) tally.violated(exchange, `the guest's clock is ${Math.ceil(late + boundMs)} ms ahead`);
    },
    report: () => tally.report(),
  };
}

/** No answer holds the canary of another tenant. */
export function createTenantCheck(
  describe: Describe,
  canaryFor: (exchange: Exchange) => string,
  tenants: number,
): Check {
  const tally = new Tally('tenant', describe);
  return {
    name: 'tenant',
    examine(exchange) {
      if (exchange.status === 0) return;
      tally.saw();
      const own = canaryFor(exchange);
      for (const [canary] of exchange.bodyText.matchAll(canaryPattern)) {
        if (canary !== own) {
          tally.violated(exchange, `holds ${canary}, asked as ${own}`);
          return;
        }
      }
    },
    report: () =>
      tally.report(tenants < 2 ? 'one tenant only: give a second with --tenant-key to let bytes cross' : ''),
  };
}
