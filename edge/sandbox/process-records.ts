/** Keeps on record how processes of sandboxes end, over changes of their machines. */
import type { Logger } from 'pino';
import type { Clock, Termination } from '../../sdk/index.ts';
import type { Entry } from './entry.ts';
import type { LiveMachine } from './live-machine.ts';
import { ProcessLog } from './process-log.ts';
import { type EndedProcess, type Past, ProcessWatch } from './process-watch.ts';
import type { SandboxStore } from './store.ts';
import { killedVerdict } from './verdict.ts';

export class ProcessRecords implements Disposable {
  readonly #deps: { readonly store: SandboxStore; readonly clock: Clock };
  readonly #log: ProcessLog;

  constructor(deps: { readonly store: SandboxStore; readonly clock: Clock; readonly log: Logger }) {
    this.#deps = deps;
    this.#log = new ProcessLog(deps);
  }

  /** Watches the machine that an entry now has. */
  watch(entry: Entry, live: LiveMachine, kind: Past['kind']): void {
    const { clock, store } = this.#deps;
    const { id } = entry.record;
    entry.processes?.[Symbol.dispose]();
    // Those of a machine that was rewound are gone with it.
    if (kind === 'copied') this.#noteAll(entry, killedVerdict(clock.now(), 'the sandbox was rewound'));
    this.#log.flush();
    const told = new Set([...store.endedProcesses(id), ...entry.record.endedBefore]);
    const onEndedBefore = (keys: readonly string[]) => {
      if (keys.length > 0 && entry.state !== 'ended') entry.update({ endedBefore: [...keys] });
    };
    const past: Past =
      kind === 'missed' ? { kind, told } : kind === 'copied' ? { kind, onEndedBefore } : { kind };
    const onEnded = (ended: EndedProcess) => {
      if (entry.processes === watch) this.#log.note(id, ended);
    };
    const watch = new ProcessWatch(live.channel, { clock, onEnded }, past);
    entry.processes = watch;
  }

  /** What still runs in a sandbox ends with it; nothing is watched any more. */
  end(entry: Entry, termination: Termination): void {
    this.#noteAll(entry, termination);
    this.#log.flush();
    entry.processes?.[Symbol.dispose]();
  }

  #noteAll(entry: Entry, termination: Termination): void {
    for (const process of entry.processes?.running ?? [])
      this.#log.note(entry.record.id, { ...process, exitCode: null, signal: null, termination });
  }

  [Symbol.dispose](): void {
    this.#log[Symbol.dispose]();
  }
}
