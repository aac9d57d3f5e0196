import type { Exchange } from '../driver/exchange.ts';
import { type Check, Tally } from './check.ts';

/** One in so many requests is sent again. */
const everyNth = 20;

/** Sends some requests a second time under the same `Idempotency-Key`, after the first was answered. */
export interface RepeatsCheck extends Pick<Check, 'report'> {
  isDue(sequence: number): boolean;
  compare(first: Exchange, again: Exchange): void;
}

/** A repetition gets the first answer again. Probe answers hold a count and random bytes, so an equal one was not made anew. */
export function createRepeatsCheck(describe: (exchange: Exchange) => string): RepeatsCheck {
  const tally = new Tally('idempotency', describe);
  return {
    isDue: (sequence) => sequence % everyNth === 0,
    compare(first, again) {
      // One that was refused or cut off says nothing of what it would have been answered.
      if (again.outcome !== 'ok') return;
      tally.saw();
      if (!again.isReplayed) tally.violated(again, 'the repetition was not answered as one');
      else if (again.bodyText !== first.bodyText)
        tally.violated(
          again,
          `answered \`${first.bodyText.slice(0, 60)}\`, then \`${again.bodyText.slice(0, 60)}\``,
        );
    },
    report: () => tally.report(),
  };
}
