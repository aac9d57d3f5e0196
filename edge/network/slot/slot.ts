/** One slot: a network namespace with a tap for a guest, an uplink, and rules. */

import { z } from 'zod';
import { GatewayError, type NodeId } from '../../../sdk/index.ts';
import type { RunCommand } from '../command.ts';
import type { Nft } from '../nft.ts';
import type { Floor } from '../rules/floor.ts';
import { closedRules, type NetworkRules } from '../rules/rules.ts';
import { type SlotLayout, slotLayout } from './layout.ts';
import { renderPreparation } from './preparation.ts';
import {
  type PinElement,
  refusalSeconds,
  renderPins,
  renderRuleset,
  type SlotLimits,
  slotTable,
} from './ruleset.ts';

export interface SlotDeps {
  /** Epoch ms. */
  readonly now: () => number;
  readonly run: RunCommand;
  readonly nft: Pick<Nft, 'run'>;
  readonly floor: Floor;
}

export interface SlotOptions {
  readonly node: NodeId;
  /** Where the uplinks end: a named namespace, or null for the edge's own. */
  readonly outside: string | null;
  readonly limits: SlotLimits;
  /** Bits per second each way; null: not limited. */
  readonly bandwidthBitsPerSecond: number | null;
}

/** What the kernel refused at a slot, most recent minute. */
export interface KernelRefusal {
  readonly address: string;
  readonly protocol: 'tcp' | 'udp';
  readonly port: number;
  readonly packets: number;
  /** Epoch ms of the last one. */
  readonly at: number;
}

/** A prepared slot refuses everything until rules are applied. */
export interface Slot {
  readonly index: number;
  readonly layout: SlotLayout;
  /** Replaces rules and pins in one transaction; connections that are no longer allowed are cut with their next packet. */
  apply(rules: NetworkRules, pins?: readonly PinElement[]): Promise<void>;
  /** Opens addresses for a time. Resolves when the kernel knows them. */
  pin(pins: readonly PinElement[]): Promise<void>;
  refusals(): Promise<KernelRefusal[]>;
  /** Removes the namespace and all in it. Idempotent. */
  remove(): Promise<void>;
}

/** A slot that another edge prepared, as it is. */
export const takeOverSlot = (deps: SlotDeps, options: SlotOptions, index: number): Slot =>
  createSlot(deps, options, index, slotLayout(options.node, index));

/** Makes the namespace with its links; removes it again when a step fails. Throws `host_not_ready`. */
export async function prepareSlot(deps: SlotDeps, options: SlotOptions, index: number): Promise<Slot> {
  const layout = slotLayout(options.node, index);
  const slot = createSlot(deps, options, index, layout);
  try {
    await deps.run(['sh', '-s'], { input: renderPreparation(layout, options) });
    await slot.apply(closedRules);
    return slot;
  } catch (error) {
    await slot.remove().catch(() => {});
    throw error;
  }
}

function createSlot(deps: SlotDeps, options: SlotOptions, index: number, layout: SlotLayout): Slot {
  let generation = 0;
  // One after another, in the order of the calls: the process that runs them sees to it.
  const nft = (input: string) => deps.nft.run(layout.netns, input);
  return {
    index,
    layout,
    async apply(rules, pins = []) {
      // By the clock, so that a later edge, which takes the slot over, is ahead of what connections were marked with.
      generation = Math.max(generation + 1, Math.floor(deps.now() / 1000));
      await nft(renderRuleset({ rules, floor: deps.floor, generation, pins, limits: options.limits }));
    },
    async pin(pins) {
      if (pins.length > 0) await nft(renderPins(pins));
    },
    async refusals() {
      const listings = await Promise.all(
        ['refused4', 'refused6'].map((set) =>
          deps.nft.run(layout.netns, `list set inet ${slotTable} ${set}`, { isJson: true }),
        ),
      );
      return listings.flatMap((json) => parseRefusals(json, deps.now()));
    },
    async remove() {
      await removeNamespace(deps.run, layout.netns);
    },
  };
}

/**
 * Removes a slot's namespace; not finding it is success. The kernel clears its links away a moment later: nothing of ours is in
 * it by then, and cutting the uplink by ourselves would take five times as long.
 */
export async function removeNamespace(run: RunCommand, netns: string): Promise<void> {
  await run(['ip', 'netns', 'delete', netns]).catch(ignoreMissing);
}

function ignoreMissing(error: unknown): void {
  const output = error instanceof GatewayError ? (error.details.output ?? '') : '';
  if (!/Cannot find device|No such file|does not exist/.test(output)) throw error;
}

// Numbers, since their names come from a file that not every host has.
const protocols: Readonly<Record<number, KernelRefusal['protocol']>> = { 6: 'tcp', 17: 'udp' };
const elementSchema = z.object({
  elem: z.object({
    val: z.object({ concat: z.tuple([z.string(), z.coerce.number(), z.int()]) }),
    counter: z.object({ packets: z.int() }),
    /** Seconds of the set's time that are left. */
    expires: z.number(),
  }),
});
const listingSchema = z.object({
  nftables: z.array(
    z.object({ set: z.object({ name: z.string(), elem: z.array(z.unknown()).default([]) }).optional() }),
  ),
});

function parseRefusals(json: string, now: number): KernelRefusal[] {
  return listingSchema.parse(JSON.parse(json)).nftables.flatMap(({ set }) =>
    set === undefined || !/^refused[46]$/.test(set.name)
      ? []
      : set.elem.flatMap((each) => {
          const parsed = elementSchema.safeParse(each);
          if (!parsed.success) return [];
          const { val, counter, expires } = parsed.data.elem;
          const [address, number, port] = val.concat;
          const protocol = protocols[number];
          return protocol === undefined
            ? []
            : [
                {
                  address,
                  protocol,
                  port,
                  packets: counter.packets,
                  at: now - (refusalSeconds - expires) * 1000,
                },
              ];
        }),
  );
}
