/** Writes down ends of processes: many together, because each write waits for the disk. */
import type { Logger } from 'pino';
import type { Clock } from '../../sdk/index.ts';
import type { EndedProcess } from './process-watch.ts';
import type { NewEvent, SandboxStore } from './store.ts';

/** How long an end may wait for others; one that is lost by a crash is found again by the next edge. */
const gatherMs = 50;
const maxGathered = 1_000;

/** The event of a process that is over. */
const processEnded = (sandbox: string, { id, ...process }: EndedProcess): NewEvent => ({
  sandbox,
  type: 'process_ended',
  data: { process: id, ...process },
});

export class ProcessLog implements Disposable {
  readonly #deps: { readonly store: SandboxStore; readonly clock: Clock; readonly log: Logger };
  #gathered: NewEvent[] = [];
  #cancel: (() => void) | null = null;

  constructor(deps: { readonly store: SandboxStore; readonly clock: Clock; readonly log: Logger }) {
    this.#deps = deps;
  }

  note(sandbox: string, process: EndedProcess): void {
    this.#gathered.push(processEnded(sandbox, process));
    if (this.#gathered.length >= maxGathered) this.flush();
    else this.#cancel ??= this.#deps.clock.schedule(gatherMs, () => this.flush());
  }

  /** Writes now what has been noted. A full disk loses it, which is logged. */
  flush(): void {
    this.#cancel?.();
    this.#cancel = null;
    const events = this.#gathered;
    this.#gathered = [];
    if (events.length === 0) return;
    try {
      this.#deps.store.apply({ events });
    } catch (err) {
      this.#deps.log.error({ err, events: events.length }, 'ends of processes not written down');
    }
  }

  [Symbol.dispose](): void {
    this.flush();
  }
}
