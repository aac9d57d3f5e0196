/** Lets commands and requests into a sandbox, and holds them back while it is changed. */
import { type Clock, GatewayError } from '../../sdk/index.ts';

/** One use; releasing is idempotent. */
export interface Use {
  /** Aborts when the sandbox ends, or when a change could wait no longer. */
  readonly signal: AbortSignal;
  release(): void;
}

export interface UseGateOptions {
  /** How long a new use waits at a closed gate, and how long a change waits for the uses there are. */
  readonly drainMs: number;
}

const inTransition = (what: string) =>
  new GatewayError('version_unavailable', `the sandbox is ${what}`, {
    component: 'edge',
    retryAfterSeconds: 1,
  });

/** Open until it is closed for a change, then open again, or ended for good. */
export class UseGate {
  readonly #clock: Clock;
  readonly #options: UseGateOptions;
  readonly #uses = new Set<AbortController>();
  readonly #waiting = new Set<() => void>();
  #idle: PromiseWithResolvers<void> | null = null;
  /** What is being done while closed; null when open. */
  #closedFor: string | null = null;
  #end: GatewayError | null = null;

  constructor(clock: Clock, options: UseGateOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  get size(): number {
    return this.#uses.size;
  }

  /**
   * Comes in, waiting while the gate is closed.
   * @throws GatewayError `version_unavailable` when it stays closed for longer than `drainMs`, `cancelled`, or the end's own
   */
  async enter(signal: AbortSignal): Promise<Use> {
    if (this.#closedFor !== null && this.#end === null) await this.#opened(signal);
    if (signal.aborted) throw new GatewayError('cancelled', 'the caller went away', { component: 'edge' });
    if (this.#end !== null) throw this.#end;
    if (this.#closedFor !== null) throw inTransition(this.#closedFor);
    const controller = new AbortController();
    this.#uses.add(controller);
    return {
      signal: controller.signal,
      release: () => {
        if (this.#uses.delete(controller) && this.#uses.size === 0) this.#idle?.resolve();
      },
    };
  }

  async #opened(signal: AbortSignal): Promise<void> {
    const { promise, resolve: settle } = Promise.withResolvers<void>();
    const resolve = () => settle();
    this.#waiting.add(resolve);
    signal.addEventListener('abort', resolve, { once: true });
    const cancel = this.#clock.schedule(this.#options.drainMs, resolve);
    await promise;
    cancel();
    signal.removeEventListener('abort', resolve);
    this.#waiting.delete(resolve);
  }

  /** Holds new uses back from now on. @param what ends the sentence "the sandbox is …" */
  close(what: string): void {
    this.#closedFor = what;
  }

  /** Resolves when nobody is inside, or after `atMostMs`; answers whether nobody is. */
  async drained(atMostMs: number = this.#options.drainMs): Promise<boolean> {
    if (this.#uses.size === 0) return true;
    this.#idle = Promise.withResolvers<void>();
    const cancel = this.#clock.schedule(atMostMs, this.#idle.resolve);
    await this.#idle.promise;
    cancel();
    this.#idle = null;
    return this.#uses.size === 0;
  }

  /** Puts out who is still inside, with an error that tells them to come again. */
  evict(): void {
    for (const use of [...this.#uses]) use.abort(inTransition(this.#closedFor ?? 'being changed'));
  }

  /** Lets everybody in who waits. */
  open(): void {
    this.#closedFor = null;
    this.#wakeAll();
  }

  /** Nobody comes in any more, and who is inside is put out. */
  end(error: GatewayError): void {
    this.#end ??= error;
    for (const use of [...this.#uses]) use.abort(this.#end);
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}
