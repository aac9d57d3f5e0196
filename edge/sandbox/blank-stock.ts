/** Blank VMMs over the bases that were forked or resumed lately, so that the next child finds one waiting. */
import { type Clock, type NodeId, newMachineId, type VersionDigest } from '../../sdk/index.ts';
import type { BlankVmm, Vmm, VmmProcess } from '../vmm/port.ts';
import type { Base } from './bases.ts';
import type { Origin } from './record.ts';
import type { Place, Room } from './room.ts';

export interface BlankStockDeps {
  readonly vmm: Vmm;
  readonly node: NodeId;
  readonly clock: Clock;
  readonly room: () => Room;
  /** Told of each VMM as it starts to exist. */
  readonly onStarted: (vmm: VmmProcess, digest: VersionDigest) => void;
}

export interface BlankStockOptions {
  /** Blanks that wait at once over one base. 0 keeps none. */
  readonly perBase: number;
  /** A base that was not used for so long loses its blanks. */
  readonly idleMs: number;
}

interface Shelf {
  readonly base: Base;
  readonly origin: Origin;
  readonly waiting: BlankVmm[];
  starting: number;
  cancelIdle: () => void;
  cancelRefill: () => void;
  isRefillDue: boolean;
}

/** Blanks are made when no child has been for so long: their start would take the cores of those that are under way. */
const refillQuietMs = 400;
/** Rest after each start, as a multiple of what it took: children have their first work to do, which finds cold caches. */
const refillRest = 4;

export class BlankStock {
  readonly #deps: BlankStockDeps;
  readonly #options: BlankStockOptions;
  readonly #shelves = new Map<string, Shelf>();
  readonly #stopping = new AbortController();
  readonly #starts = new Set<Promise<void>>();

  constructor(deps: BlankStockDeps, options: BlankStockOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /**
   * A blank over this base, waiting or started now; the caller owns it. Throws `node_at_capacity`, `vmm_failed` and the like.
   */
  async take(base: Base, origin: Origin, signal: AbortSignal): Promise<BlankVmm> {
    const shelf = this.#shelf(base, origin);
    const blank =
      shelf.waiting.shift() ?? (await this.#start(base, origin, await this.#room.take(signal), signal));
    return blank;
  }

  /** Fills up what a base shall have waiting, a little after the last call; to be called when a child is done. */
  replenish(base: Base, origin: Origin): void {
    this.#refillIn(this.#shelf(base, origin), refillQuietMs);
  }

  /** One at a time, with rests, so that refilling takes at most a fifth of a core from children that begin to work. */
  #refill(shelf: Shelf): void {
    const { base, origin } = shelf;
    if (shelf.waiting.length + shelf.starting >= this.#options.perBase || this.#stopping.signal.aborted)
      return;
    const place = this.#room.tryTake();
    if (place === null) return;
    const { clock } = this.#deps;
    const from = clock.monotonic();
    shelf.starting += 1;
    const start = this.#start(base, origin, place, this.#stopping.signal)
      .then((blank) => this.#shelve(shelf, blank))
      .then(() => {
        // A child that came meanwhile has put the next one off already.
        if (!this.#isKept(shelf) || shelf.isRefillDue) return;
        this.#refillIn(shelf, refillRest * (clock.monotonic() - from));
      })
      // Nobody waits for it; the next child starts its own and hears why.
      .catch(() => {})
      .finally(() => {
        shelf.starting -= 1;
        this.#starts.delete(start);
      });
    this.#starts.add(start);
  }

  #refillIn(shelf: Shelf, delayMs: number): void {
    shelf.cancelRefill();
    shelf.isRefillDue = true;
    shelf.cancelRefill = this.#deps.clock.schedule(delayMs, () => {
      shelf.isRefillDue = false;
      this.#refill(shelf);
    });
  }

  /** Gives up one waiting blank; false when there is none. */
  shed(): boolean {
    for (const shelf of this.#shelves.values()) {
      const blank = shelf.waiting.shift();
      if (blank === undefined) continue;
      void blank.dispose().catch(() => {});
      return true;
    }
    return false;
  }

  /** Ends all that wait. */
  async dispose(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#starts);
    const blanks = [...this.#shelves.values()].flatMap((shelf) => shelf.waiting.splice(0));
    for (const shelf of this.#shelves.values()) {
      shelf.cancelIdle();
      shelf.cancelRefill();
    }
    await Promise.all(blanks.map((blank) => blank.dispose()));
  }

  get #room(): Room {
    return this.#deps.room();
  }

  #shelf(base: Base, origin: Origin): Shelf {
    const key = `${base.id} ${JSON.stringify(origin.shape)}`;
    const shelf = this.#shelves.get(key) ?? {
      base,
      origin,
      waiting: [],
      starting: 0,
      cancelIdle: () => {},
      cancelRefill: () => {},
      isRefillDue: false,
    };
    this.#shelves.set(key, shelf);
    shelf.cancelIdle();
    shelf.cancelIdle = this.#deps.clock.schedule(this.#options.idleMs, () => {
      this.#shelves.delete(key);
      shelf.cancelRefill();
      for (const blank of shelf.waiting.splice(0)) void blank.dispose().catch(() => {});
    });
    return shelf;
  }

  async #shelve(shelf: Shelf, blank: BlankVmm): Promise<void> {
    if (!this.#isKept(shelf)) return await blank.dispose();
    shelf.waiting.push(blank);
    void blank.exited.then(() => {
      const index = shelf.waiting.indexOf(blank);
      if (index !== -1) shelf.waiting.splice(index, 1);
    });
  }

  #isKept(shelf: Shelf): boolean {
    return [...this.#shelves.values()].includes(shelf) && !this.#stopping.signal.aborted;
  }

  async #start(base: Base, origin: Origin, place: Place, signal: AbortSignal): Promise<BlankVmm> {
    try {
      const id = newMachineId(this.#deps.node);
      const { memoryPath, diskPath } = base;
      // A blank is started without its state.
      const snapshot = { memoryPath, diskPath, statePath: '' };
      const blank = await this.#deps.vmm.spawnBlank({ id, shape: origin.shape, snapshot, signal });
      void blank.exited.then(() => place[Symbol.dispose]());
      this.#deps.onStarted(blank, origin.digest as VersionDigest);
      return blank;
    } catch (error) {
      place[Symbol.dispose]();
      throw error;
    }
  }
}
