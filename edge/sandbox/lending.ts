/** Opens a snapshot for a while: with names of its own, so that it may be removed or folded meanwhile. */
import { newMachineId } from '../../sdk/index.ts';
import type { SandboxContext } from './context.ts';
import type { RestorableSnapshot } from './snapshot-files.ts';

export interface LentSnapshot extends AsyncDisposable {
  readonly files: RestorableSnapshot;
}

/** Every layer is checked. Throws `snapshot_corrupt` naming the damaged one, `restore_failed`; the caller disposes. */
export async function lend(
  context: Pick<SandboxContext, 'files' | 'bases' | 'fingerprint' | 'node'>,
  id: string,
  signal: AbortSignal,
): Promise<LentSnapshot> {
  const { files, bases, fingerprint } = context;
  // No record names it, so the next edge would remove it.
  const lent = `lent-${newMachineId(context.node)}`;
  await files.copy(id, lent);
  const remove = () => files.remove(lent);
  try {
    const { base } = await files.manifest(lent);
    return {
      files: await files.open(lent, fingerprint, await bases.require(base), { signal }),
      [Symbol.asyncDispose]: remove,
    };
  } catch (error) {
    await remove();
    throw error;
  }
}
