/** Prepared slots, so that nobody waits for one. A returned slot is removed, never used again: nothing can survive in it. */
import { readdir } from 'node:fs/promises';
import { GatewayError, type NodeId } from '../../../sdk/index.ts';
import { maxSlots, slotIndex, slotPrefix } from './layout.ts';
import { installOutside, removeOutside } from './outside.ts';
import {
  prepareSlot,
  removeNamespace,
  type Slot,
  type SlotDeps,
  type SlotOptions,
  takeOverSlot,
} from './slot.ts';

/** How long after a hand-out the next slot is prepared. */
const refillDelayMs = 20;

export interface SlotPoolOptions extends SlotOptions {
  /** Slots kept prepared. */
  readonly ready: number;
  /** Most slots in use and prepared. */
  readonly max: number;
  /** Slots of an earlier edge whose machines live on: not removed, but taken over. */
  readonly kept?: readonly number[];
}

export interface SlotPoolStats {
  readonly ready: number;
  readonly used: number;
  readonly preparing: number;
  readonly failures: number;
}

export interface SlotPool extends AsyncDisposable {
  /** A prepared slot that refuses everything; at once when one is ready. Throws `node_at_capacity`, `host_not_ready`. */
  acquire(): Promise<Slot>;
  /** Takes it back whatever its state. Resolves when it is gone. */
  release(slot: Slot): Promise<void>;
  /** A slot of `kept`, with whatever rules are in force in it. */
  takeOver(index: number): Slot;
  /** The machine lives on without this edge: the slot stays when the pool is disposed, for a later one to take over. */
  leave(slot: Slot): void;
  /** Resolves when as many as wanted are prepared. Throws what hindered it. */
  filled(): Promise<void>;
  stats(): SlotPoolStats;
}

/** Removes what an earlier edge of this node left, then starts to fill. */
export async function openSlotPool(deps: SlotDeps, options: SlotPoolOptions): Promise<SlotPool> {
  const { run } = deps;
  const max = Math.min(options.max, maxSlots);
  const kept = new Set(options.kept ?? []);
  await reclaimSlots(deps, options, kept);
  await installOutside(run, options.node, options.outside);

  const ready: Slot[] = [];
  const used = new Set<Slot>();
  const left = new Set<Slot>();
  const taken = new Set<number>(kept);
  let failures = 0;
  let next = 0;
  let isDisposed = false;
  let filling: Promise<void> | null = null;

  async function prepare(): Promise<Slot> {
    if (isDisposed) throw new GatewayError('draining', 'the node is stopping', { component: 'edge' });
    if (taken.size >= max)
      throw new GatewayError('node_at_capacity', `all ${max} network slots of the node are in use`, {
        component: 'edge',
        retryAfterSeconds: 1,
      });
    // Not one that was just given back: the kernel may still be clearing it away.
    let index = next % max;
    while (taken.has(index)) index = (index + 1) % max;
    next = index + 1;
    taken.add(index);
    try {
      return await prepareSlot(deps, options, index);
    } catch (error) {
      taken.delete(index);
      failures += 1;
      throw error;
    }
  }

  async function fill(): Promise<void> {
    while (!isDisposed && ready.length < options.ready && taken.size < max) ready.push(await prepare());
  }

  function refill(): Promise<void> {
    filling ??= fill().finally(() => {
      filling = null;
    });
    return filling;
  }
  /**
   * Starting a program takes milliseconds of this thread, which belong to whoever just got a slot. The next acquire meets the
   * same failure and reports it.
   */
  const refillLater = () =>
    setTimeout(() => void (isDisposed || refill().catch(() => {})), refillDelayMs).unref();

  async function take(): Promise<Slot> {
    const prepared = ready.shift();
    if (prepared !== undefined) return prepared;
    // At the bound the last one may be the one that is just being prepared.
    if (taken.size >= max && filling !== null) await filling.catch(() => {});
    return ready.shift() ?? (await prepare());
  }

  async function discard(slot: Slot): Promise<void> {
    await slot.remove();
    taken.delete(slot.index);
  }

  refillLater();
  return {
    async acquire() {
      const slot = await take();
      used.add(slot);
      refillLater();
      return slot;
    },
    async release(slot) {
      if (!used.delete(slot)) return;
      await discard(slot);
      refillLater();
    },
    takeOver(index) {
      if (!kept.delete(index)) throw new Error(`slot ${index} was not kept`);
      const slot = takeOverSlot(deps, options, index);
      used.add(slot);
      return slot;
    },
    leave(slot) {
      if (used.delete(slot)) left.add(slot);
    },
    filled: refill,
    stats: () => ({
      ready: ready.length,
      used: used.size,
      preparing: taken.size - ready.length - used.size - left.size - kept.size,
      failures,
    }),
    async [Symbol.asyncDispose]() {
      if (isDisposed) return;
      isDisposed = true;
      await filling?.catch(() => {});
      const results = await Promise.allSettled([...ready.splice(0), ...used].map(discard));
      used.clear();
      // Machines that live on still need the way out.
      if (left.size + kept.size === 0) await removeOutside(run, options.node, options.outside);
      const failed = results.find((result) => result.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
    },
  };
}

/** Whether namespaces of this node are there, such as a crash leaves. */
export async function hasSlots(node: NodeId): Promise<boolean> {
  return (await namespaces()).some((name) => name.startsWith(slotPrefix(node)));
}

async function namespaces(): Promise<string[]> {
  return await readdir('/run/netns').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
}

/** Removes every namespace whose name carries this node's id. */
async function reclaimSlots(
  deps: Pick<SlotDeps, 'run'>,
  options: Pick<SlotOptions, 'node' | 'outside'>,
  kept: ReadonlySet<number>,
): Promise<number> {
  const names = await namespaces();
  const ours = names.filter(
    (name) => name.startsWith(slotPrefix(options.node)) && !kept.has(slotIndex(options.node, name)),
  );
  for (const name of ours) await removeNamespace(deps.run, name);
  return ours.length;
}
