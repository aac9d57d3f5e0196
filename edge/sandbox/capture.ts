/** Takes what a running guest is at one instant: its dirty pages, its disk, its device state. */
import type { Clock, ForkResult } from '../../sdk/index.ts';
import { findRamMapping, type PageCopier } from '../memory/index.ts';
import type { PausedVmm, RunningVmm } from '../vmm/port.ts';
import type { SnapshotDraft } from './snapshot-files.ts';

export interface Captured {
  /** The guest stands still until the caller resumes or ends it. */
  readonly paused: PausedVmm;
  /** All of its disk layers, bottom first, in the draft. */
  readonly finish: () => Promise<readonly string[]>;
  /** `stoppedMs` counts up to now; the resume comes on top. */
  readonly timing: ForkResult['timing'];
}

export interface CaptureDeps {
  readonly clock: Clock;
  readonly copier: PageCopier;
  /** Called between two steps; tests let it throw. */
  readonly step?: (name: string) => void | Promise<void>;
}

/**
 * Stops a guest and captures it into a draft. Device state comes last: until the guest stood still, bytes for its channel may
 * be under way, and what QEMU still puts into its rings must be in the state if it is in no page. (A child then has lost
 * input of a session that ends anyway; the other order makes the queues disagree and the child unusable.)
 *
 * On failure the guest runs again (`resumed` is told its VMM) and the error is thrown; it is gone when the VMM is.
 */
export async function capture(
  deps: CaptureDeps,
  running: RunningVmm,
  draft: SnapshotDraft,
  options: { readonly memoryPath: string; readonly signal: AbortSignal; resumed(vmm: RunningVmm): void },
): Promise<Captured> {
  const { clock, copier, step = () => {} } = deps;
  // All that can be done while the guest runs.
  const mapping = await findRamMapping(running.pid, options.memoryPath);
  await running.prepareFreeze();
  await step('prepared');
  const startedAt = clock.monotonic();
  const paused = await running.pause();
  try {
    await step('stopped');
    const freezeAt = clock.monotonic();
    let diskMs = 0;
    const copy = copier.capture(paused.pid, mapping, draft.deltaPath);
    const freeze = paused.freezeDisk().then(() => {
      diskMs = clock.monotonic() - freezeAt;
    });
    // The guest must not go on while its pages are still being read, whatever else fails.
    const pages = await copy.copied.finally(() => freeze.catch(() => {}));
    await freeze;
    const pagesMs = clock.monotonic() - freezeAt;
    await step('frozen');
    const stateAt = clock.monotonic();
    const state = await paused.saveState();
    const timing = {
      stateMs: clock.monotonic() - stateAt,
      pagesMs,
      diskMs,
      dirtyBytes: pages.pages * 4096,
      stoppedMs: clock.monotonic() - startedAt,
    };
    await step('saved');
    const finish = async () => {
      await state.moveTo(draft.statePath);
      await copy.written;
      return draft.link(await paused.frozenLayers());
    };
    return { paused, finish, timing };
  } catch (error) {
    options.resumed(await paused.resume());
    throw error;
  }
}
