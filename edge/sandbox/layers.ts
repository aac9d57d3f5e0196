/** Keeps disks from growing a layer with each capture: what is deep is folded in the background, while its guest runs. */
import type { SandboxContext } from './context.ts';
import type { LiveMachine } from './live-machine.ts';

/** Frozen layers above which a disk is folded once it was captured or resumed: each one costs whoever reads and starts. */
const maxLayers = 4;
/**
 * The same for a disk that came into being as a copy. It is more: many copies of one disk are made at once, have their first work
 * to do, and mostly don't live long enough to be worth it. A copy of a copy of a copy … gets there in the end.
 */
const maxCopiedLayers = 8;

/** @param layers how many frozen ones its disk has */
export function foldDeepDisk(
  { log }: Pick<SandboxContext, 'log'>,
  live: LiveMachine,
  layers: number,
  origin: 'captured' | 'copied',
): void {
  if (layers <= (origin === 'captured' ? maxLayers : maxCopiedLayers)) return;
  live.foldDisk((err) => log.warn({ err, 'machine.id': live.id }, 'disk not folded'));
}
