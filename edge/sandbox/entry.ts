/** One sandbox in memory: its record, its machine, who uses it, and what is being done to it. */
import {
  type Clock,
  GatewayError,
  isGatewayError,
  type SandboxEvent,
  type SandboxInfo,
  type Termination,
} from '../../sdk/index.ts';
import type { LiveMachine } from './live-machine.ts';
import type { ProcessWatch } from './process-watch.ts';
import type { SandboxRecord } from './record.ts';
import type { Change, SandboxStore } from './store.ts';
import { UseGate } from './use-gate.ts';

type EventType = SandboxEvent['type'];

export class Entry {
  readonly gate: UseGate;
  /** Aborts when it is to end: whatever is being done to it stops. */
  readonly ending = new AbortController();
  /** Opened; at rest they are sealed. */
  secrets: Readonly<Record<string, string>> = {};
  /** Of the machine it has or had last. */
  processes: ProcessWatch | null = null;
  /** Gives up a pause that its deadline asked for; null while there is none. */
  deadlinePause: AbortController | null = null;
  /** The machine while it runs; null when it is paused or has ended. */
  live: LiveMachine | null = null;
  #record: SandboxRecord;
  readonly #store: SandboxStore;
  #transition: { readonly name: string; readonly done: Promise<void> } | null = null;

  constructor(
    deps: { readonly store: SandboxStore; readonly clock: Clock },
    record: SandboxRecord,
    options: { readonly drainMs: number },
  ) {
    this.#store = deps.store;
    this.#record = record;
    this.gate = new UseGate(deps.clock, options);
  }

  get record(): SandboxRecord {
    return this.#record;
  }
  get state(): SandboxInfo['state'] {
    return this.#record.state;
  }
  get isBusy(): boolean {
    return this.#transition !== null;
  }

  /** Writes the change down, then it holds. `event` is of this sandbox; `more` is part of the same change. */
  update(
    patch: Partial<SandboxRecord>,
    event?: { readonly type: EventType; readonly data?: Record<string, unknown> },
    more: Pick<Change, 'snapshots' | 'removedSnapshots' | 'events'> = {},
  ): void {
    const next = { ...this.#record, ...patch };
    const events =
      event === undefined
        ? []
        : [{ sandbox: next.id, type: event.type, data: { generation: next.generation, ...event.data } }];
    this.#store.apply({ ...more, sandboxes: [next], events: [...events, ...(more.events ?? [])] });
    this.#record = next;
  }

  /** A change is over that has no event of its own, or failed with `error`. @param after what was done or tried */
  settle(state: 'running' | 'paused', after: string, error?: unknown): void {
    const failure = error === undefined ? {} : { error: isGatewayError(error) ? error.code : 'internal' };
    this.update({ state }, { type: 'settled', data: { state, after, ...failure } });
  }

  /** Resolves when nothing is being done to it. */
  async settled(): Promise<void> {
    while (this.#transition !== null) await this.#transition.done;
  }

  /**
   * Does one thing at a time to it. `signal` also aborts when the sandbox is to end.
   * @param name ends the sentence "the sandbox is …"
   * @throws GatewayError `conflict` while something else is being done, `sandbox_not_found` once it ended
   */
  async change<T>(name: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.requireAlive();
    if (this.#transition !== null)
      throw new GatewayError('conflict', `the sandbox is ${this.#transition.name}`, {
        component: 'edge',
        retryAfterSeconds: 1,
      });
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#transition = { name, done: promise };
    try {
      return await work(AbortSignal.any([signal, this.ending.signal]));
    } finally {
      this.#transition = null;
      resolve();
    }
  }

  /** Throws `sandbox_not_found` once it ended or is about to. */
  requireAlive(): void {
    if (this.state === 'ended' || this.ending.signal.aborted)
      throw ended(this.#record.id, this.#record.termination);
  }

  /** The machine of a running sandbox; `conflict` when it is paused. */
  requireLive(): LiveMachine {
    this.requireAlive();
    if (this.live !== null) return this.live;
    throw new GatewayError('conflict', `sandbox ${this.#record.id} is ${this.state}`, { component: 'edge' });
  }
}

/** Tells whoever comes too late whether the task ended or we lost it. */
export const ended = (id: string, termination: Termination | null) =>
  new GatewayError(
    'sandbox_not_found',
    `sandbox ${id} has ended${termination === null ? '' : `: ${termination.reason}`}`,
    {
      component: 'edge',
      ...(termination === null ? {} : { extra: { reason: termination.reason, infra: termination.infra } }),
    },
  );
