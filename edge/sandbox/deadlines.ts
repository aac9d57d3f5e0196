/** Ends or pauses what has outlived its deadline. */
import type { SandboxInfo, Termination } from '../../sdk/index.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import { pause } from './suspension.ts';
import { deadlineVerdict } from './verdict.ts';

/** A kill does not wait for these to be over; one that is being paused or resumed is about to need no deadline, or to get another. */
const endable = new Set<SandboxInfo['state']>(['running', 'snapshotting', 'rewinding']);

/**
 * Looks at the deadlines as they are now: there is no timer of a sandbox that could be older than its deadline. One that can
 * not be paused because something else is being done to it is met by the next look.
 */
export async function keepDeadlines(
  context: SandboxContext,
  entries: Iterable<Entry>,
  end: (entry: Entry, termination: Termination) => Promise<void>,
): Promise<void> {
  const now = context.clock.now();
  const due = [...entries].filter(
    ({ record, state, isBusy }) =>
      record.deadlineAt <= now &&
      (record.onTimeout === 'kill' ? endable.has(state) : state === 'running' && !isBusy),
  );
  await Promise.all(
    due.map(async (entry) => {
      try {
        if (entry.record.onTimeout === 'kill') await end(entry, deadlineVerdict(entry.record, now));
        else await pauseInTime(context, entry);
      } catch (err) {
        context.log.error({ err, 'sandbox.id': entry.record.id }, 'deadline of a sandbox not kept');
      }
    }),
  );
}

/** A renewal that comes before the pause is written down gives it up. */
async function pauseInTime(context: SandboxContext, entry: Entry): Promise<void> {
  const renewed = new AbortController();
  entry.deadlinePause = renewed;
  try {
    await pause(context, entry, renewed.signal);
  } catch (error) {
    if (!renewed.signal.aborted) throw error;
  } finally {
    entry.deadlinePause = null;
  }
}

/** Gives a sandbox another deadline, counted from now; one that only extends never brings it nearer. Each change is a generation. */
export function renewDeadline(
  { clock }: Pick<SandboxContext, 'clock'>,
  entry: Entry,
  deadlineMs: number,
  onlyExtend: boolean,
): void {
  const now = clock.now();
  const { record } = entry;
  const deadlineAt = onlyExtend ? Math.max(now + deadlineMs, record.deadlineAt) : now + deadlineMs;
  if (deadlineAt > now) entry.deadlinePause?.abort();
  if (deadlineAt === record.deadlineAt) return;
  entry.update(
    { deadlineAt, deadlineMs, generation: record.generation + 1 },
    { type: 'deadline_changed', data: { deadlineAt } },
  );
}
