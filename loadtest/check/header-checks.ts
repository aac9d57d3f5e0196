import type { Exchange } from '../driver/exchange.ts';
import { type Check, Tally } from './check.ts';

/** Machines remembered; 20-character ids, so a few MiB. */
const maxMachines = 100_000;

type Describe = (exchange: Exchange) => string;

/** A fresh clone: the machine was made for, or handed out for the first time to, this request. */
const isFresh = (exchange: Exchange): boolean => exchange.start !== 'reused' && exchange.start !== 'unknown';

/** The first request of each fresh clone succeeds. */
export function createFreshCloneCheck(describe: Describe): Check {
  const tally = new Tally('fresh-clone', describe);
  const seen = new BoundedSet(maxMachines);
  return {
    name: 'fresh-clone',
    examine(exchange) {
      if (exchange.machine === '') return;
      const isFirst = seen.add(exchange.machine);
      if (!isFirst && !isFresh(exchange)) return;
      tally.saw();
      if (exchange.outcome !== 'ok') {
        tally.violated(exchange, `start ${exchange.start}: ${exchange.errorCode}, status ${exchange.status}`);
      }
    },
    report: () => tally.report(seen.limits),
  };
}

/** A machine is handed out as fresh once in its life. */
export function createStartTypeCheck(
  describe: Describe,
  options: { readonly seesAllRequests: boolean },
): Check {
  const tally = new Tally('start-type', describe);
  const seen = new BoundedSet(maxMachines);
  return {
    name: 'start-type',
    examine(exchange) {
      if (exchange.machine === '' || exchange.start === 'unknown') return;
      tally.saw();
      const isFirst = seen.add(exchange.machine);
      if (isFresh(exchange) && !isFirst) {
        tally.violated(exchange, `called ${exchange.start}, but this machine answered before in this run`);
      }
    },
    report: () =>
      tally.report(
        options.seesAllRequests ? seen.limits : 'several generators: each knows only the machines it met',
      ),
  };
}

/**
 * The digest is the expected one, where one is expected, and never changes for a machine. `expected` maps a target's
 * index to the digests that are right; publishing under load has two.
 */
export function createDigestCheck(
  describe: Describe,
  expected: ReadonlyMap<number, ReadonlySet<string>>,
): Check {
  const tally = new Tally('digest', describe);
  const digestOfMachine = new Map<string, string>();
  return {
    name: 'digest',
    examine(exchange) {
      if (exchange.outcome !== 'ok') return;
      const right = expected.get(exchange.target);
      if (right !== undefined) {
        tally.saw();
        if (!right.has(exchange.digest)) {
          tally.violated(
            exchange,
            `digest ${exchange.digest || 'missing'}, expected ${[...right].join(' or ')}`,
          );
          return;
        }
      }
      if (exchange.machine === '' || exchange.digest === '') return;
      if (right === undefined) tally.saw();
      const known = digestOfMachine.get(exchange.machine);
      if (known === undefined) {
        if (digestOfMachine.size < maxMachines) digestOfMachine.set(exchange.machine, exchange.digest);
      } else if (known !== exchange.digest) {
        tally.violated(exchange, `digest ${exchange.digest} from a machine that answered as ${known}`);
      }
    },
    report: () =>
      tally.report(
        expected.size === 0 ? 'no digest was expected (--expect-digest), so only changes show' : '',
      ),
  };
}

/** Refusals tell the caller when to come back. */
export function createRetryAfterCheck(describe: Describe): Check {
  const tally = new Tally('retry-after', describe);
  return {
    name: 'retry-after',
    examine(exchange) {
      if (exchange.errorCode === '' || (exchange.status !== 429 && exchange.status !== 503)) return;
      tally.saw();
      if (!/^[0-9]{1,9}$/.test(exchange.retryAfter)) {
        tally.violated(
          exchange,
          `${exchange.status} ${exchange.errorCode} with Retry-After \`${exchange.retryAfter}\``,
        );
      }
    },
    report: () => tally.report(),
  };
}

/** Remembers up to a ceiling of texts. */
class BoundedSet {
  private readonly values = new Set<string>();
  private readonly ceiling: number;

  constructor(ceiling: number) {
    this.ceiling = ceiling;
  }

  get limits(): string {
    return this.values.size >= this.ceiling
      ? `machines after the first ${this.ceiling} were not told apart`
      : '';
  }

  /** True when the value is new and could be remembered, so that a full set never accuses anybody. */
  add(value: string): boolean {
    if (this.values.has(value)) return false;
    if (this.values.size < this.ceiling) this.values.add(value);
    return true;
  }
}
