/** Removes bases that nobody stands on any more, and never one under a machine that is being made. */
import type { Logger } from 'pino';
import type { Bases } from './bases.ts';
import type { SandboxStore } from './store.ts';

export class BaseCollection {
  readonly #deps: { readonly store: SandboxStore; readonly bases: Bases; readonly log: Logger };
  #making = 0;
  #collecting: Promise<void> | null = null;
  #isDue = false;

  constructor(deps: { readonly store: SandboxStore; readonly bases: Bases; readonly log: Logger }) {
    this.#deps = deps;
  }

  /** Collects now; or later, while machines are being made, which stand on bases that no record names yet. */
  async collect(): Promise<void> {
    this.#isDue = true;
    if (this.#making > 0 || this.#collecting !== null) return;
    this.#isDue = false;
    const { store, bases, log } = this.#deps;
    const alive = store.sandboxes().filter(({ state }) => state !== 'ended');
    this.#collecting = bases
      .sweep(new Set([...alive, ...store.snapshots()].map(({ base }) => base)))
      .catch((err: unknown) => log.error({ err }, 'bases left behind'))
      .finally(() => {
        this.#collecting = null;
      });
    await this.#collecting;
  }

  /** Makes machines, with nothing that they stand on being removed meanwhile. */
  async make<T>(work: () => Promise<T>): Promise<T> {
    this.#making += 1;
    try {
      await this.#collecting;
      return await work();
    } finally {
      this.#making -= 1;
      if (this.#isDue) await this.collect();
    }
  }
}
