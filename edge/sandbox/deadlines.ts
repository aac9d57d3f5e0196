/** Ends or pauses what has outlived its deadline. */
import type { Termination } from '../../sdk/index.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import { pause } from './suspension.ts';
import { killedVerdict } from './verdict.ts';

/**
 * Looks at the deadlines as they are now: there is no timer of a sandbox that could be older than its deadline. One that is
 * being changed is met by the next look.
 */
export async function keepDeadlines(
  context: SandboxContext,
  entries: Iterable<Entry>,
  end: (entry: Entry, termination: Termination) => Promise<void>,
): Promise<void> {
  const now = context.clock.now();
  const due = [...entries].filter(
    (entry) => entry.state === 'running' && entry.record.deadlineAt <= now && !entry.isBusy,
  );
  await Promise.all(
    due.map(async (entry) => {
      try {
        if (entry.record.onTimeout === 'kill') await end(entry, killedVerdict('deadline', now));
        else await pause(context, entry, new AbortController().signal);
      } catch (err) {
        context.log.error({ err, 'sandbox.id': entry.record.id }, 'deadline of a sandbox not kept');
      }
    }),
  );
}
