import type { Exchange } from '../driver/exchange.ts';
import { type Check, Tally } from './check.ts';
import { Executions } from './executions.ts';

const maxMachines = 100_000;
/** Answers of one machine that may be out of order at a time. */
const maxOutOfOrder = 4096;

interface Counting {
  /** The first count seen. Answers overtake each other, so a few smaller ones may follow: `before`. */
  readonly first: number;
  /** Every count from `first` up to this was answered to us. */
  upTo: number;
  readonly ahead: Set<number>;
  readonly before: Set<number>;
}

/**
 * Each answer carries the id of its own request; no id ran at two places, and none that was refused; counts of one machine never repeat (two clones of one state behind one
 * id, or a replayed answer); and a count that no answer carried (an invocation that ran without its answer arriving,
 * such as a retried one) must be explained by a request of ours that failed without an answer.
 *
 * Needs the probe template to be used by nobody else during the run.
 */
export function createInvocationsCheck(
  describe: (exchange: Exchange) => string,
  idFor: (exchange: Exchange) => string,
  options: { readonly seesAllRequests: boolean; readonly isOurs: (id: string) => boolean },
): Check & { unreadable(exchange: Exchange, reason: string): void } {
  const tally = new Tally('invocations', describe);
  const machines = new Map<string, Counting>();
  const executions = new Executions((exchange, detail) => tally.violated(exchange, detail));
  let unanswered = 0;
  let isTruncated = false;

  const count = (exchange: Exchange, value: number) => {
    const key = exchange.machine;
    if (key === '') return;
    const counting = machines.get(key);
    if (counting === undefined) {
      if (machines.size >= maxMachines) isTruncated = true;
      else machines.set(key, { first: value, upTo: value, ahead: new Set(), before: new Set() });
      return;
    }
    const { first, upTo, ahead, before } = counting;
    if ((value >= first && value <= upTo) || ahead.has(value) || before.has(value)) {
      tally.violated(exchange, `count ${value} of this machine was answered twice`);
      return;
    }
    const outOfOrder = value < first ? before : ahead;
    if (outOfOrder.size >= maxOutOfOrder) {
      isTruncated = true;
      return;
    }
    outOfOrder.add(value);
    while (ahead.delete(counting.upTo + 1)) counting.upTo += 1;
  };

  return {
    name: 'invocations',
    examine(exchange, probe) {
      if (exchange.outcome === 'timeout' || exchange.outcome === 'failed') unanswered += 1;
      const id = idFor(exchange);
      if (exchange.outcome === 'refused') executions.refused(exchange, id);
      if (probe === null) return;
      tally.saw();
      if (probe.id !== id) tally.violated(exchange, `asked ${id}, answered ${probe.id}`);
      executions.ran(exchange, probe.id, probe.count);
      for (const [number, other] of probe.recent)
        if (options.isOurs(other)) executions.ran(exchange, other, number);
      count(exchange, probe.count);
    },
    unreadable(exchange, reason) {
      tally.saw();
      tally.violated(exchange, `no probe answer: ${reason}`);
    },
    report() {
      const missing = missingCounts(machines);
      if (options.seesAllRequests && !isTruncated && missing > unanswered) {
        tally.add({
          sequence: -1,
          atMs: -1,
          request: 'all',
          machine: '',
          detail: `${missing} invocations ran without an answer, ${unanswered} requests had none`,
        });
      }
      if (!options.seesAllRequests)
        return tally.report('several generators: runs without an answer not counted');
      return tally.report(
        isTruncated || executions.isTruncated
          ? 'too many requests, machines or answers out of order to tell all apart'
          : '',
      );
    },
  };
}

function missingCounts(machines: ReadonlyMap<string, Counting>): number {
  let missing = 0;
  for (const { upTo, ahead } of machines.values()) {
    if (ahead.size > 0) missing += Math.max(...ahead) - upTo - ahead.size;
  }
  return missing;
}
