/** Snapshots that people ask for: taking, going back to, keeping and dropping them. */
import {
  type CreateSnapshotRequest,
  GatewayError,
  newMachineId,
  type SandboxId,
  type SnapshotInfo,
} from '../../sdk/index.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import { takeRunning } from './fork.ts';
import { foldDeepDisk } from './layers.ts';
import { lend } from './lending.ts';
import { type SnapshotRecord, toSnapshotInfo } from './record.ts';
import { retain } from './retention.ts';

/** By id, or by name with or without `snapshot:` in front. Throws `version_not_found`. */
export function findSnapshot(context: Pick<SandboxContext, 'store'>, text: string): SnapshotRecord {
  const key = text.replace(/^snapshot:/, '');
  const found = context.store.snapshot(key) ?? context.store.snapshotByName(key);
  if (found !== undefined && found.kind === 'user') return found;
  throw new GatewayError('version_not_found', 'there is no such snapshot', { component: 'edge' });
}

/**
 * Keeps what a sandbox is now; it runs on (or stays paused). It exists once its record does: complete, summed and synced.
 * @throws GatewayError `conflict` (in transition, or the name is taken), `disk_full`, `quota_exceeded`
 */
export async function takeSnapshot(
  context: SandboxContext,
  entry: Entry,
  request: CreateSnapshotRequest,
  signal: AbortSignal,
): Promise<SnapshotInfo> {
  const { bases, clock, files, fingerprint, store } = context;
  if (request.name !== undefined && store.snapshotByName(request.name) !== undefined)
    throw new GatewayError('conflict', 'a snapshot of this name exists', {
      component: 'edge',
      field: 'name',
    });
  const id = newMachineId(context.node);
  const record = await entry.change('being captured', signal, async (inner) => {
    const { pausedAs, origin, base } = entry.record;
    try {
      const bytes = await (async () => {
        if (entry.state === 'paused' && pausedAs !== null) return files.copy(pausedAs, id);
        await using draft = await files.draft(id);
        const { channelToken } = entry.requireLive();
        await takeRunning(context, entry, draft, { what: 'snapshot', signal: inner });
        return await draft.publish({ origin, base, channelToken, fingerprint }, bases.at(base), {
          signal: inner,
        });
      })();
      await context.step('snapshot.published');
      const taken: SnapshotRecord = {
        ...{ id, kind: 'user', name: request.name ?? null, sandbox: entry.record.id, origin, base },
        ...{ parent: entry.record.basis, createdAt: clock.now(), isPinned: request.isPinned, bytes },
        network: entry.record.network,
      };
      entry.update(
        { basis: id },
        { type: 'snapshotted', data: { snapshot: id, bytes } },
        { snapshots: [taken] },
      );
      return taken;
    } catch (error) {
      await files.remove(id);
      throw error;
    }
  });
  await retain(context, record);
  return toSnapshotInfo(record);
}

/**
 * Puts a sandbox back to one of its snapshots: a new machine is made first, so that nothing is lost when that fails.
 * @throws GatewayError `version_not_found`, `conflict` (another sandbox's, or in transition), `snapshot_corrupt` …
 */
export async function rewind(
  context: SandboxContext,
  entry: Entry,
  text: string,
  signal: AbortSignal,
): Promise<void> {
  const snapshot = findSnapshot(context, text);
  if (snapshot.sandbox !== entry.record.id)
    throw new GatewayError('conflict', 'a sandbox can only go back to a snapshot of its own', {
      component: 'edge',
      field: 'snapshot',
    });
  await entry.change('being rewound', signal, async (inner) => {
    const old = entry.requireLive();
    entry.update({ state: 'rewinding' }, { type: 'rewinding', data: { snapshot: snapshot.id } });
    entry.gate.close('being rewound');
    try {
      await using lent = await lend(context, snapshot.id, inner);
      if (!(await entry.gate.drained())) entry.gate.evict();
      await context.step('rewind.opened');
      const live = await context.restorer.restore(lent.files, {
        signal: inner,
        prepare: (machine) => context.networks.enter(machine, entry.record),
      });
      try {
        await context.step('rewind.restored');
        entry.update(
          {
            state: 'running',
            machine: { id: live.id, channelToken: live.channelToken },
            base: lent.files.base,
            basis: snapshot.id,
            startedAt: context.clock.now(),
          },
          { type: 'rewound', data: { snapshot: snapshot.id, machine: live.id } },
        );
      } catch (error) {
        await live.end('rewind failed');
        throw error;
      }
      entry.live = live;
      context.watch(entry, live, 'copied');
      foldDeepDisk(context, live, lent.files.layers.length, 'copied');
    } catch (error) {
      if (context.store.sandbox(entry.record.id)?.state === 'rewinding')
        entry.settle('running', 'rewind', error);
      entry.gate.open();
      throw error;
    }
    await context.step('rewind.committed');
    entry.gate.open();
    await old
      .end('rewound')
      .catch((err: unknown) => context.log.error({ err }, 'rewound machine left behind'));
  });
}

/** What people see; the ones that hold paused sandboxes are left out. */
export function listSnapshots(
  context: Pick<SandboxContext, 'store'>,
  filter: { readonly sandbox?: SandboxId },
): SnapshotInfo[] {
  return context.store
    .snapshots()
    .filter(({ kind, sandbox }) => kind === 'user' && (filter.sandbox ?? sandbox) === sandbox)
    .sort((a, b) => a.createdAt - b.createdAt)
    .map(toSnapshotInfo);
}
