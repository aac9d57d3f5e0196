/** Which snapshots are kept, and what becomes of the tree when one goes. */
import type { SandboxContext, SandboxOptions } from './context.ts';
import type { SnapshotRecord } from './record.ts';

type Limits = Pick<SandboxOptions, 'snapshotsPerSandbox' | 'snapshotBytes'>;

/**
 * What is too much once `newest` was taken: of its sandbox by number, pinned ones not counted; then of the node by bytes. The oldest go
 * first, never a pinned one and never the newest. Pure.
 */
export function surplus(
  snapshots: readonly SnapshotRecord[],
  newest: SnapshotRecord,
  { snapshotsPerSandbox, snapshotBytes }: Limits,
): SnapshotRecord[] {
  const removable = (one: SnapshotRecord) => !one.isPinned && one.id !== newest.id;
  const all = snapshots.filter(({ kind }) => kind === 'user').sort((a, b) => a.createdAt - b.createdAt);
  const own = all.filter(({ sandbox, isPinned }) => sandbox === newest.sandbox && !isPinned);
  const gone = new Set(own.slice(0, Math.max(0, own.length - snapshotsPerSandbox)).filter(removable));
  let bytes = all.reduce((sum, one) => sum + (gone.has(one) ? 0 : one.bytes), 0);
  for (const one of all) {
    if (bytes <= snapshotBytes) break;
    if (gone.has(one) || !removable(one)) continue;
    gone.add(one);
    bytes -= one.bytes;
  }
  return [...gone];
}

type DropDeps = Pick<SandboxContext, 'store' | 'rebase' | 'collect'> & {
  readonly files: Pick<SandboxContext['files'], 'remove'>;
};

/** Drops what is {@link surplus}. */
export async function retain(
  deps: DropDeps & { readonly options: Limits },
  newest: SnapshotRecord,
): Promise<void> {
  for (const { id } of surplus(deps.store.snapshots(), newest, deps.options)) {
    // As it is now: its parent may have gone in this very loop.
    const record = deps.store.snapshot(id);
    if (record !== undefined) await dropSnapshot(deps, record);
  }
}

/** Its children in the tree become children of its parent; sandboxes made from it are not touched. */
export async function dropSnapshot(deps: DropDeps, snapshot: SnapshotRecord): Promise<void> {
  const { files, store } = deps;
  const heirs = store.snapshots().filter(({ parent }) => parent === snapshot.id);
  const standing = store.sandboxes().filter(({ basis }) => basis === snapshot.id);
  for (const { id } of standing) deps.rebase(id, snapshot.id, snapshot.parent);
  store.apply({
    removedSnapshots: [snapshot.id],
    snapshots: heirs.map((heir) => ({ ...heir, parent: snapshot.parent })),
  });
  await files.remove(snapshot.id);
  await deps.collect();
}
