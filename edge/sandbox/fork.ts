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
import { lend } from './lending.ts';
import type { SandboxRecord } from './record.ts';
import type { RestorableSnapshot, SnapshotDraft } from './snapshot-files.ts';

/** A pause that is shorter leaves the guest's clock near enough for its next requests; it is set all the same. */
const noticeableMs = 40;
/** Frozen layers of a disk above which they are folded, in the background. */
export const maxDiskLayers = 4;
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
    // Each capture adds a layer, and each layer costs whoever reads and starts.
    if (layers.length > maxDiskLayers)
      live.foldDisk((err) => context.log.warn({ err, 'sandbox.id': record.id }, 'disk not folded'));
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
  const makeChild = async () => {
    try {
      const record = await child(context, source, taken.snapshot, request, options.signal);
      return { sandbox: options.show(record) };
    } catch (error) {
      return { error: problemOf(error) };
    }
  };
  const children = await Promise.all(Array.from({ length: request.count }, makeChild));
  return { children, notInherited: notInherited(source), timing: taken.timing };
}

async function child(
  context: SandboxContext,
  source: SandboxRecord,
  snapshot: RestorableSnapshot,
  request: ForkRequest,
  signal: AbortSignal,
): Promise<SandboxRecord> {
  const { clock, networks, restorer, store } = context;
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
  try {
    await context.step('fork.restored');
    const event = { sandbox: record.id, type: 'forked' as const, data: { parent: source.id } };
    store.apply({ sandboxes: [record], events: [event] });
  } catch (error) {
    await live.end('not written down');
    throw error;
  }
  return context.adopt(record, live, 'copied').record;
}

/** What a child lacks of its source. */
export function notInherited(source: SandboxRecord): string[] {
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
