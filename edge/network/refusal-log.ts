/** What the rules of this node's machines refused lately: bounded, in memory, for events and for who follows. */
import type { NetworkRefusal } from '../../sdk/index.ts';

/** Which refusals are wanted; what is left out is not asked. */
export interface RefusalFilter {
  readonly machine?: string | undefined;
  readonly sandbox?: string | undefined;
  /** Digests of versions. */
  readonly digests?: readonly string[] | undefined;
}

/** Kept of one machine, so that a noisy one does not push out the others; and of the node. */
const keptPerMachine = 200;
const keptMachines = 256;
/** The same again within this time is counted. */
const repetitionMs = 10_000;

interface Kept {
  readonly digest: string;
  readonly refusals: NetworkRefusal[];
}

export class RefusalLog {
  readonly #machines = new Map<string, Kept>();
  readonly #watchers = new Set<(refusal: NetworkRefusal, digest: string) => void>();
  #total = 0;

  /** All that was ever refused, repetitions included; for metrics. */
  get total(): number {
    return this.#total;
  }

  add(digest: string, refusal: NetworkRefusal): void {
    this.#total += refusal.count;
    const kept = this.#machines.get(refusal.machine) ?? { digest, refusals: [] };
    // Last in, last out: the machine that was heard of longest ago is forgotten first.
    this.#machines.delete(refusal.machine);
    this.#machines.set(refusal.machine, kept);
    const index = kept.refusals.findLastIndex((one) => isSame(one, refusal));
    const known = kept.refusals[index];
    if (known !== undefined && refusal.at - known.at < repetitionMs) {
      const at = Math.max(known.at, refusal.at);
      kept.refusals[index] = { ...known, at, count: known.count + refusal.count };
      return;
    }
    kept.refusals.push(refusal);
    if (kept.refusals.length > keptPerMachine) kept.refusals.shift();
    if (this.#machines.size > keptMachines) {
      const [oldest] = this.#machines.keys();
      if (oldest !== undefined) this.#machines.delete(oldest);
    }
    for (const watcher of this.#watchers) watcher(refusal, digest);
  }

  /** The latest `tail` of each machine, in order of time. */
  read(filter: RefusalFilter, tail: number = keptPerMachine): NetworkRefusal[] {
    const found = [...this.#machines.values()].flatMap(({ digest, refusals }) => {
      const wanted = refusals.filter((refusal) => isWanted(filter, refusal, digest));
      return wanted.slice(Math.max(0, wanted.length - tail));
    });
    return found.sort((a, b) => a.at - b.at);
  }

  /** Calls back for each that is no repetition, from now on; the answer ends it. */
  watch(listener: (refusal: NetworkRefusal, digest: string) => void): () => void {
    this.#watchers.add(listener);
    return () => this.#watchers.delete(listener);
  }
}

const identity = [
  'sandbox',
  'ruleSet',
  'kind',
  'name',
  'address',
  'protocol',
  'port',
  'rule',
  'reason',
] as const satisfies readonly (keyof NetworkRefusal)[];
const isSame = (a: NetworkRefusal, b: NetworkRefusal): boolean => identity.every((key) => a[key] === b[key]);

const isWanted = (filter: RefusalFilter, refusal: NetworkRefusal, digest: string): boolean =>
  (filter.machine ?? refusal.machine) === refusal.machine &&
  (filter.sandbox ?? refusal.sandbox) === refusal.sandbox &&
  (filter.digests?.includes(digest) ?? true);
