/** The networks of a node's machines: a slot for each machine with a network card, and rules in force in it. */
import { GatewayError, type MachineId, type NetworkRefusal, type NodeId } from '../../sdk/index.ts';
import type { RunCommand } from './command.ts';
import type { Resolver } from './dns/resolver.ts';
import type { NetnsSockets } from './netns-sockets.ts';
import type { Nft } from './nft.ts';
import { type RefusalFilter, RefusalLog } from './refusal-log.ts';
import { isWithin } from './rules/address.ts';
import { type Floor, isPermitted } from './rules/floor.ts';
import { closedRules, type NetworkRules } from './rules/rules.ts';
import { type NetworkSession, openNetworkSession } from './session.ts';
import { tapName } from './slot/layout.ts';
import { hasSlots, openSlotPool, type SlotPool, type SlotPoolStats } from './slot/pool.ts';
import type { Slot, SlotOptions } from './slot/slot.ts';

export interface MachineNetworksDeps {
  readonly now: () => number;
  readonly run: RunCommand;
  readonly nft: Pick<Nft, 'run'>;
  readonly sockets: NetnsSockets;
  readonly resolver: Resolver;
  readonly floor: Floor;
  /** Why this host can't enforce rules; null where it can. */
  readonly lack: GatewayError | null;
  /** Told of what goes wrong where nobody waits for it. */
  readonly onError: (error: unknown, what: string) => void;
}

export interface MachineNetworksOptions extends SlotOptions {
  readonly node: NodeId;
  readonly ready: number;
  readonly max: number;
}

/** Whose rules a machine has. */
export interface RuleOwner {
  /** Of the machine's version. */
  readonly digest: string;
  readonly sandbox: string | null;
  /** For people, such as `template hello`. */
  readonly ruleSet: string;
}

/** A machine's slot, as a later edge finds it again. */
export interface AttachedSlot {
  readonly slot: number;
  readonly netns: string;
  readonly device: string;
}

/** Disposing ends what was opened, but leaves the slots of machines that still are attached: those live on. */
export interface MachineNetworks extends AsyncDisposable {
  /** Throws `host_not_ready` with the command that changes it. */
  requireSupport(): void;
  /** Why this host can't enforce rules, null where it can; and what of the floor its operator lets rules open. */
  describe(): { readonly lack: string | null; readonly permittedRanges: string[] };
  /** Rules that name a range which the floor shuts on this node, as their author wrote them. */
  shut(rules: NetworkRules): string[];
  /**
   * Removes what a dead edge left, but keeps these slots, whose machines live on; those of them that nobody takes over until
   * {@link forget} go. To be called once, first.
   */
  start(kept: readonly number[]): Promise<void>;
  /** A slot of its own, that refuses everything. Throws `host_not_ready`, `node_at_capacity`. */
  attach(machine: MachineId): Promise<AttachedSlot>;
  /** A machine of an earlier edge has this slot. Its rules stay in force until {@link setRules}, which also opens names again. */
  takeOver(machine: MachineId, slot: number): void;
  /** Gives up the kept slots that no machine was found for. */
  forget(): Promise<void>;
  /** Puts rules in force, or others; nothing happens when they are the same. A machine without a card is left alone. */
  setRules(machine: MachineId, owner: RuleOwner, rules: NetworkRules): Promise<void>;
  hasCard(machine: MachineId): boolean;
  /** The machine is no more. Idempotent. */
  detach(machine: MachineId): Promise<void>;
  /** What was refused, after a look at what the kernel refused by itself. */
  refusals(filter: RefusalFilter, tail?: number): Promise<NetworkRefusal[]>;
  /** Calls back for each new one with the digest of its version; the answer ends it. */
  watch(listener: (refusal: NetworkRefusal, digest: string) => void): () => void;
  stats(): SlotPoolStats & { readonly refusals: number };
}

interface Entry {
  readonly slot: Slot;
  session: NetworkSession | null;
  owner: RuleOwner | null;
  rulesKey: string;
  /** Changes of one machine happen one after another. */
  last: Promise<unknown>;
}

/** The kernel's memory of refusals is looked at this often; it forgets after a minute. */
const lookMs = 5_000;

export function createMachineNetworks(
  deps: MachineNetworksDeps,
  options: MachineNetworksOptions,
): MachineNetworks {
  const log = new RefusalLog();
  const entries = new Map<MachineId, Entry>();
  const leaving = new Map<MachineId, Promise<void>>();
  let kept: number[] = [];
  let opened: Promise<SlotPool> | null = null;
  let pool: SlotPool | null = null;
  const timer = setInterval(() => void look(), lookMs);
  timer.unref();

  function requireSupport(): void {
    if (deps.lack !== null) throw deps.lack;
  }

  /** Nothing is made on a host before a machine needs it. */
  function open(): Promise<SlotPool> {
    requireSupport();
    opened ??= openSlotPool(deps, { ...options, kept }).then(
      (made) => {
        pool = made;
        return made;
      },
      (error: unknown) => {
        opened = null;
        throw error;
      },
    );
    return opened;
  }

  async function look(): Promise<void> {
    for (const { session } of [...entries.values()])
      await session?.lookAtKernel().catch((error: unknown) => deps.onError(error, 'refusals not read'));
  }

  const openSession = (machine: MachineId, entry: Pick<Entry, 'owner'>, slot: Slot, rules: NetworkRules) =>
    openNetworkSession(
      {
        ...deps,
        onRefusal: ({ text, ...refusal }) =>
          log.add(entry.owner?.digest ?? '', {
            ...refusal,
            machine,
            sandbox: entry.owner?.sandbox ?? null,
            ruleSet: entry.owner?.ruleSet ?? 'none',
            reason: text,
          }),
      },
      slot,
      rules,
    );

  const inTurn = <T>(entry: Entry, work: () => Promise<T>): Promise<T> => {
    const next = entry.last.then(work);
    entry.last = next.catch(() => {});
    return next;
  };

  async function giveBack(entry: Entry): Promise<void> {
    await entry.last;
    // What it was refused last is worth knowing when it has just failed.
    await entry.session?.lookAtKernel().catch(() => {});
    await entry.session?.[Symbol.asyncDispose]();
    await pool?.release(entry.slot);
  }

  return {
    requireSupport,
    describe: () => ({
      lack: deps.lack?.message ?? null,
      permittedRanges: deps.floor.permitted.map(({ text }) => text),
    }),
    shut: ({ rules }) =>
      rules.flatMap(({ text, target, verdict }) =>
        verdict === 'allow' &&
        target.kind === 'range' &&
        deps.floor.refused.some(({ range }) => isWithin(target.range, range)) &&
        !isPermitted(deps.floor, target.range)
          ? [text]
          : [],
      ),
    async start(keptSlots) {
      kept = [...keptSlots];
      if (deps.lack !== null) return;
      if (kept.length > 0 || (await hasSlots(options.node))) await open();
    },
    async attach(machine) {
      const slots = await open();
      const slot = await slots.acquire();
      const entry: Entry = { slot, session: null, owner: null, rulesKey: '', last: Promise.resolve() };
      try {
        entry.session = await openSession(machine, entry, slot, closedRules);
      } catch (error) {
        await slots.release(slot);
        throw error;
      }
      entries.set(machine, entry);
      return { slot: slot.index, netns: slot.layout.netns, device: tapName };
    },
    takeOver(machine, index) {
      if (pool === null || !kept.includes(index))
        throw new GatewayError('host_not_ready', `the network slot of machine ${machine} is gone`, {
          component: 'edge',
        });
      kept = kept.filter((each) => each !== index);
      const slot = pool.takeOver(index);
      entries.set(machine, { slot, session: null, owner: null, rulesKey: '', last: Promise.resolve() });
    },
    async forget() {
      const slots = pool;
      if (slots === null) return;
      await Promise.all(kept.splice(0).map((index) => slots.release(slots.takeOver(index))));
    },
    async setRules(machine, owner, rules) {
      const entry = entries.get(machine);
      if (entry === undefined) return;
      await inTurn(entry, async () => {
        entry.owner = owner;
        const key = JSON.stringify(rules);
        if (key === entry.rulesKey) return;
        if (entry.session === null) entry.session = await openSession(machine, entry, entry.slot, rules);
        else await entry.session.replace(rules);
        entry.rulesKey = key;
      });
    },
    hasCard: (machine) => entries.has(machine),
    detach(machine) {
      const entry = entries.get(machine);
      if (entry === undefined) return leaving.get(machine) ?? Promise.resolve();
      entries.delete(machine);
      const done = giveBack(entry).finally(() => leaving.delete(machine));
      leaving.set(machine, done);
      return done;
    },
    async refusals(filter, tail) {
      await look();
      return log.read(filter, tail);
    },
    watch: (listener) => log.watch(listener),
    stats: () => ({
      ...(pool?.stats() ?? { ready: 0, used: 0, preparing: 0, failures: 0 }),
      refusals: log.total,
    }),
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      const slots = await opened?.catch(() => null);
      for (const entry of entries.values()) {
        await entry.last;
        await entry.session?.[Symbol.asyncDispose]();
        slots?.leave(entry.slot);
      }
      entries.clear();
      await Promise.allSettled(leaving.values());
      await slots?.[Symbol.asyncDispose]();
    },
  };
}
