/** Pausing to disk and resuming from it. */
import { newMachineId } from '../../sdk/index.ts';
import { capture } from './capture.ts';
import { stepClock } from './clock-step.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import { foldDeepDisk } from './layers.ts';
import { lend } from './lending.ts';
import type { SnapshotRecord } from './record.ts';

/**
 * Writes the sandbox to disk and ends its machine. The record that says `paused` is the turning point: before it, whatever
 * happens leaves a running sandbox; from it on, a paused one.
 * @throws GatewayError `conflict` unless it runs; `disk_full` and others with the sandbox running as before
 */
export async function pause(context: SandboxContext, entry: Entry, signal: AbortSignal): Promise<void> {
  const { files, bases, store, clock } = context;
  await entry.change('being paused', signal, async (inner) => {
    const live = entry.requireLive();
    const { record } = entry;
    const id = newMachineId(context.node);
    entry.update({ state: 'pausing' }, { type: 'pausing' });
    entry.gate.close('being paused');
    try {
      if (!(await entry.gate.drained())) entry.gate.evict();
      await live.diskSettled();
      const base = bases.at(record.base);
      await using draft = await files.draft(id);
      const captured = await capture(
        { ...context, step: (name) => context.step(`pause.${name}`) },
        live.running,
        draft,
        { memoryPath: base.memoryPath, signal: inner, resumed: (vmm) => live.goOn(vmm) },
      );
      try {
        await captured.finish();
        const bytes = await draft.publish(
          {
            origin: record.origin,
            base: base.id,
            channelToken: live.channelToken,
            fingerprint: context.fingerprint,
          },
          base,
          { signal: inner },
        );
        await context.step('pause.published');
        // Whoever renewed its deadline or ended it until now has it running.
        inner.throwIfAborted();
        entry.update(
          { state: 'paused', machine: null, pausedAs: id },
          { type: 'paused', data: { bytes, ...captured.timing } },
          { snapshots: [pauseRecord(entry, id, bytes, clock.now())] },
        );
      } catch (error) {
        live.goOn(await captured.paused.resume());
        throw error;
      }
    } catch (error) {
      await files.remove(id);
      if (store.sandbox(record.id)?.state === 'pausing') entry.settle('running', 'pause', error);
      await stepClock(context, entry, live);
      entry.gate.open();
      throw error;
    }
    await context.step('pause.committed');
    entry.live = null;
    await live
      .end('paused')
      .catch((err: unknown) => context.log.error({ err }, 'paused machine left behind'));
    entry.gate.open();
  });
}

function pauseRecord(entry: Entry, id: string, bytes: number, createdAt: number): SnapshotRecord {
  const { record } = entry;
  return {
    id,
    kind: 'pause',
    name: null,
    sandbox: record.id,
    origin: record.origin,
    base: record.base,
    parent: record.basis,
    createdAt,
    isPinned: false,
    bytes,
    network: record.network,
  };
}

/**
 * Brings a paused sandbox back. It stays paused until the record says `running`; then its snapshot goes.
 * @throws GatewayError `conflict` unless it is paused; `snapshot_corrupt`, `node_at_capacity`, `restore_failed` …
 */
export async function resume(
  context: SandboxContext,
  entry: Entry,
  options: { readonly signal: AbortSignal; readonly deadlineMs?: number },
): Promise<void> {
  const { clock, files } = context;
  await entry.change('being resumed', options.signal, async (signal) => {
    const { pausedAs } = entry.record;
    if (entry.state !== 'paused' || pausedAs === null) {
      entry.requireLive();
      return;
    }
    entry.update({ state: 'resuming' }, { type: 'resuming' });
    entry.gate.close('being resumed');
    let layers = 0;
    try {
      await using snapshot = await lend(context, pausedAs, signal);
      layers = snapshot.files.layers.length;
      await context.step('resume.opened');
      const live = await context.restorer.restore(snapshot.files, {
        signal,
        prepare: (machine) => context.networks.enter(machine, entry.record),
      });
      try {
        await context.step('resume.restored');
        const now = clock.now();
        const deadlineMs = options.deadlineMs ?? entry.record.deadlineMs;
        entry.update(
          {
            state: 'running',
            machine: { id: live.id, channelToken: live.channelToken },
            base: snapshot.files.base,
            pausedAs: null,
            startedAt: now,
            deadlineMs,
            deadlineAt: now + deadlineMs,
            generation: entry.record.generation + 1,
            start: 'resumed',
          },
          { type: 'resumed', data: { machine: live.id, ...live.parts } },
          { removedSnapshots: [pausedAs] },
        );
      } catch (error) {
        await live.end('restore failed');
        throw error;
      }
      entry.live = live;
      context.watch(entry, live, 'missed');
    } catch (error) {
      if (context.store.sandbox(entry.record.id)?.state === 'resuming')
        entry.settle('paused', 'resume', error);
      entry.gate.open();
      throw error;
    }
    await context.step('resume.committed');
    entry.gate.open();
    if (entry.live !== null) foldDeepDisk(context, entry.live, layers, 'captured');
    await files.remove(pausedAs);
  });
}
