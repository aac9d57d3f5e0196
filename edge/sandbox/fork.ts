/** Children of a running or paused sandbox. */
import {
  type CreatedSandbox,
  type ForkRequest,
  type ForkResult,
  GatewayError,
  newMachineId,
  toProblem,
} from '../../sdk/index.ts';
import { capture } from './capture.ts';
import { stepClock } from './clock-step.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import { foldDeepDisk } from './layers.ts';
import { lend } from './lending.ts';
import type { LiveMachine } from './live-machine.ts';
import type { SandboxRecord } from './record.ts';
import type { RestorableSnapshot, SnapshotDraft } from './snapshot-files.ts';

/** A pause that is shorter leaves the guest's clock near enough for its next requests; it is set all the same. */
const noticeableMs = 40;
const nothingStopped = { stoppedMs: 0, stateMs: 0, pagesMs: 0, diskMs: 0, dirtyBytes: 0 };

export interface Taken {
  readonly snapshot: RestorableSnapshot;
  readonly timing: ForkResult['timing'];
}

/**
 * Captures a running sandbox into a draft while it runs on. Uses that are inside are given `forkDrainMs` to end; those that
 * go on are only slowed, and new ones wait for the few milliseconds.
 */
export async function takeRunning(
  context: SandboxContext,
  entry: Entry,
  draft: SnapshotDraft,
  options: { readonly what: 'fork' | 'snapshot'; readonly signal: AbortSignal },
): Promise<Taken> {
  const { bases, clock } = context;
  const live = entry.requireLive();
  const { record } = entry;
  const base = bases.at(record.base);
  await live.diskSettled();
  entry.update({ state: 'snapshotting' }, { type: 'snapshotting', data: { for: options.what } });
  entry.gate.close(options.what === 'fork' ? 'being forked' : 'being captured');
  try {
    await entry.gate.drained(context.options.forkDrainMs);
    // What we have sent so far has arrived once this is answered.
    await live.channel.ping({ signal: options.signal });
    const captured = await capture(
      { ...context, step: (name) => context.step(`${options.what}.${name}`) },
      live.running,
      draft,
      {
        memoryPath: base.memoryPath,
        signal: options.signal,
        resumed: (vmm) => live.goOn(vmm),
      },
    );
    const resumeAt = clock.monotonic();
    live.goOn(await captured.paused.resume());
    const stoppedMs = captured.timing.stoppedMs + clock.monotonic() - resumeAt;
    const stepped = stepClock(context, entry, live);
    if (stoppedMs > noticeableMs) await stepped;
    await context.step(`${options.what}.resumed`);
    const layers = await captured.finish();
    foldDeepDisk(context, live, layers.length, 'captured');
    const snapshot = {
      origin: record.origin,
      base: record.base,
      channelToken: live.channelToken,
      deltaPath: draft.deltaPath,
      statePath: draft.statePath,
      layers,
    };
    return { snapshot, timing: { ...captured.timing, stoppedMs } };
  } finally {
    if (entry.state === 'snapshotting') entry.settle('running', options.what);
    entry.gate.open();
  }
}

/**
 * Makes children. The source is held only while it is captured; a child that can't be made is an error in its own place.
 * @throws GatewayError `sandbox_not_found`, `conflict` (in transition), `disk_full`
 */
export async function fork(
  context: SandboxContext,
  entry: Entry,
  request: ForkRequest,
  options: {
    readonly signal: AbortSignal;
    show(record: SandboxRecord): CreatedSandbox;
  },
): Promise<ForkResult> {
  const { files } = context;
  const source = entry.record;
  await using stack = new AsyncDisposableStack();
  const taken = await entry.change('being forked', options.signal, async (signal): Promise<Taken> => {
    if (entry.state === 'paused' && source.pausedAs !== null) {
      const lent = stack.use(await lend(context, source.pausedAs, signal));
      return { snapshot: lent.files, timing: nothingStopped };
    }
    const draft = stack.use(await files.draft(`fork-${newMachineId(context.node)}`));
    return takeRunning(context, entry, draft, { what: 'fork', signal });
  });
  // As many at once as the node restores at once; each is an error in its own place.
  const made = await Promise.all(
    Array.from({ length: request.count }, () =>
      child(context, source, taken.snapshot, request, options.signal).catch(toFailure),
    ),
  );
  const children = await writeDown(context, made, taken.snapshot);
  return {
    children: children.map((one) =>
      'error' in one ? { error: problemOf(one.error) } : { sandbox: options.show(one.record) },
    ),
    notInherited: notInherited(source),
    timing: taken.timing,
  };
}

interface Child {
  readonly record: SandboxRecord;
  readonly live: LiveMachine;
}
type Made = Child | { readonly error: unknown };
const toFailure = (error: unknown): Made => ({ error });

/** A machine that runs and of which nobody knows: it goes with the edge until it is written down. */
async function child(
  context: SandboxContext,
  source: SandboxRecord,
  snapshot: RestorableSnapshot,
  request: ForkRequest,
  signal: AbortSignal,
): Promise<Child> {
  const { clock, networks, restorer } = context;
  const live = await restorer.restore(snapshot, {
    signal,
    prepare: (machine) => networks.enter(machine, { ...source, id: machine }),
  });
  const now = clock.now();
  const deadlineMs = request.deadlineMs ?? Math.max(1_000, source.deadlineAt - now);
  const record: SandboxRecord = {
    ...source,
    id: live.id,
    base: snapshot.base,
    state: 'running',
    createdAt: now,
    startedAt: now,
    deadlineMs,
    deadlineAt: now + deadlineMs,
    generation: 1,
    metadata: { ...source.metadata, ...request.metadata },
    ...{ secretNames: [], sealedSecrets: null, endedBefore: [] },
    parent: { kind: 'sandbox', id: source.id },
    start: 'forked',
    termination: null,
    machine: { id: live.id, channelToken: live.channelToken },
    pausedAs: null,
  };
  return { record, live };
}

/** All children at once: a write to the medium for each would hold up those that still come, and crash a fork half-way. */
async function writeDown(
  context: SandboxContext,
  made: readonly Made[],
  { layers }: RestorableSnapshot,
): Promise<readonly Made[]> {
  const children = made.filter((one): one is Child => 'record' in one);
  if (children.length === 0) return made;
  try {
    await context.step('fork.restored');
    context.store.apply({
      sandboxes: children.map(({ record }) => record),
      events: children.map(({ record, live }) => ({
        sandbox: record.id,
        type: 'forked' as const,
        data: { parent: record.parent?.id, ...live.parts },
      })),
    });
  } catch (error) {
    await Promise.allSettled(children.map(({ live }) => live.end('not written down')));
    return made.map((one) => ('error' in one ? one : { error }));
  }
  for (const { record, live } of children) {
    context.adopt(record, live, 'copied');
    foldDeepDisk(context, live, layers.length, 'copied');
  }
  return made;
}

/** What a child lacks of its source. */
function notInherited(source: SandboxRecord): string[] {
  return [
    ...source.secretNames.map((name) => `secret ${name}`),
    'open connections to ports, and the sessions of whoever follows output',
    'snapshots, which stay with the source',
  ];
}

function problemOf(error: unknown): Record<string, unknown> {
  const known =
    error instanceof GatewayError
      ? error
      : new GatewayError('internal', 'the child could not be made', { component: 'edge', cause: error });
  const { retryAfterSeconds } = known.details;
  return { ...toProblem(known), ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }) };
}
