/**
 * Notices how each process of a running sandbox ends, so that it is on record even when nobody waits for it. Statuses that its
 * channel gives from now on carry the verdict.
 */
import { type Clock, isGatewayError, type Termination } from '../../sdk/index.ts';
import type { ProcessStatus, SandboxChannel } from '../guest/index.ts';
import { serviceId } from '../machine/service-output.ts';
import { processVerdict, removedVerdict } from './verdict.ts';

/** A process that is over. */
export interface EndedProcess {
  readonly id: string;
  readonly pid: number;
  readonly exitCode: number | null;
  readonly signal: number | null;
  readonly termination: Termination;
}

/** What is known of processes that ended before the watch began. */
export type Past =
  /** There were none but the template's own service. */
  | { readonly kind: 'fresh' }
  /** They ended in another sandbox, of which this one is a copy; told once, so that nobody takes them for this one's. */
  | { readonly kind: 'copied'; readonly onEndedBefore: (keys: readonly string[]) => void }
  /** Those that are not told were missed while nobody watched. */
  | { readonly kind: 'missed'; readonly told: ReadonlySet<string> };

export interface ProcessWatchDeps {
  readonly clock: Clock;
  readonly onEnded: (process: EndedProcess) => void;
}

/** Waits that are open at once; an agent takes 256 requests in all. The others are looked at from time to time. */
const maxWaits = 48;
const lookMs = 2_000;
/** A copy has better to do at first than to answer this. */
const settleMs = 500;
const evidenceBytes = 1_024;
const evidenceMs = 2_000;
const maxVerdicts = 512;
/** Whatever pid the service has. */
const anyPid = 0;

/** An id may be used again; with the pid it names one process of a machine. */
export const processKey = ({ id, pid }: { readonly id: string; readonly pid: number }): string =>
  `${id} ${pid}`;

export class ProcessWatch implements Disposable {
  readonly #channel: SandboxChannel;
  readonly #own: Pick<SandboxChannel, 'listProcesses' | 'waitProcess'>;
  readonly #deps: ProcessWatchDeps;
  readonly #running = new Map<string, { readonly id: string; readonly pid: number }>();
  readonly #queue: string[] = [];
  readonly #verdicts = new Map<string, Promise<Termination>>();
  readonly #stop = new AbortController();
  #cancelLook: (() => void) | null = null;
  #waits = 0;

  /** Puts itself into the channel, which lives no longer than the machine that is watched. */
  constructor(channel: SandboxChannel, deps: ProcessWatchDeps, past: Past) {
    this.#channel = channel;
    this.#deps = deps;
    this.#own = {
      listProcesses: channel.listProcesses.bind(channel),
      waitProcess: channel.waitProcess.bind(channel),
    };
    this.#join(channel);
    switch (past.kind) {
      case 'fresh':
        this.#follow({ id: serviceId, pid: anyPid });
        return;
      case 'copied':
        this.#cancelLook = deps.clock.schedule(settleMs, () => void this.#look(past));
        return;
      case 'missed':
        void this.#look(past);
    }
  }

  /** Processes that are not known to have ended. */
  get running(): readonly { readonly id: string; readonly pid: number }[] {
    return [...this.#running.values()].filter(({ pid }) => pid !== anyPid);
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    this.#cancelLook?.();
    this.#queue.length = 0;
  }

  #join(channel: SandboxChannel): void {
    const start = channel.startProcess.bind(channel);
    const status = channel.processStatus.bind(channel);
    const { listProcesses, waitProcess } = this.#own;
    channel.startProcess = async (spec, options) => {
      try {
        const started = await start(spec, options);
        this.#follow(started);
        return started;
      } catch (error) {
        // It may run although nobody heard of it.
        if (isGatewayError(error, 'cancelled')) this.#lookSoon();
        throw error;
      }
    };
    channel.processStatus = async (id, options) => this.#judged(await status(id, options));
    channel.waitProcess = async (id, options) => this.#judged(await waitProcess(id, options));
    channel.listProcesses = async (options) =>
      Promise.all((await listProcesses(options)).map((one) => this.#judged(one)));
  }

  async #judged(status: ProcessStatus): Promise<ProcessStatus> {
    return status.state === 'running' ? status : { ...status, termination: await this.#verdict(status) };
  }

  /** Found once and remembered: the event and every answer say the same. */
  #verdict(status: ProcessStatus): Promise<Termination> {
    const key = processKey(status);
    const known = this.#verdicts.get(key) ?? this.#judge(status);
    this.#verdicts.set(key, known);
    const [oldest] = this.#verdicts.keys();
    if (this.#verdicts.size > maxVerdicts && oldest !== undefined) this.#verdicts.delete(oldest);
    return known;
  }

  async #judge(status: ProcessStatus): Promise<Termination> {
    const at = this.#deps.clock.now();
    if (status.exitCode === 0) return processVerdict(status, { at });
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(evidenceMs)]);
    const isOwnExit = status.exitCode !== null && !status.isTimedOut && !status.isOutOfMemory;
    const [said, metrics] = await Promise.all([
      this.#lastWords(status, signal).catch(() => ''),
      isOwnExit ? this.#channel.metrics({ signal }).catch(() => null) : null,
    ]);
    return processVerdict(status, { at, said, metrics });
  }

  async #lastWords({ id, isPty }: ProcessStatus, signal: AbortSignal): Promise<string> {
    const stream = isPty === true ? 'pty' : 'stderr';
    const output = await this.#channel.processOutput(id, stream, { offset: -evidenceBytes, signal });
    const chunks: Buffer[] = await output.toArray();
    return Buffer.concat(chunks).toString('utf8');
  }

  #follow(process: { readonly id: string; readonly pid: number }): void {
    const key = processKey(process);
    if (this.#running.has(key) || this.#stop.signal.aborted) return;
    this.#running.set(key, { id: process.id, pid: process.pid });
    this.#queue.push(key);
    this.#pump();
  }

  #pump(): void {
    while (this.#waits < maxWaits) {
      const key = this.#queue.shift();
      const process = key === undefined ? undefined : this.#running.get(key);
      if (key === undefined) return;
      if (process === undefined) continue;
      this.#waits += 1;
      void this.#await(key, process).finally(() => {
        this.#waits -= 1;
        this.#pump();
      });
    }
    if (this.#queue.length > 0) this.#lookSoon();
  }

  async #await(key: string, { id, pid }: { readonly id: string; readonly pid: number }): Promise<void> {
    try {
      const status = await this.#own.waitProcess(id, { signal: this.#stop.signal });
      if (pid === anyPid || status.pid === pid) await this.#over(key, status);
      else this.#running.delete(key);
    } catch (error) {
      // The channel is cut: whoever watches the next machine of the sandbox looks again.
      if (this.#stop.signal.aborted || !isGatewayError(error, 'process_not_found')) return;
      this.#running.delete(key);
      const termination = removedVerdict(this.#deps.clock.now());
      if (pid !== anyPid) this.#deps.onEnded({ id, pid, exitCode: null, signal: null, termination });
    }
  }

  async #over(key: string, status: ProcessStatus): Promise<void> {
    const termination = await this.#verdict(status);
    if (!this.#running.delete(key) || this.#stop.signal.aborted) return;
    const { id, pid, exitCode, signal } = status;
    this.#deps.onEnded({ id, pid, exitCode, signal, termination });
  }

  #lookSoon(): void {
    this.#cancelLook ??= this.#deps.clock.schedule(lookMs, () => void this.#look());
  }

  async #look(past?: Past): Promise<void> {
    this.#cancelLook = null;
    try {
      const all = await this.#own.listProcesses({ signal: this.#stop.signal });
      const ended = all.filter(({ state }) => state === 'exited');
      if (past?.kind === 'missed') {
        for (const status of ended) {
          const key = processKey(status);
          if (!past.told.has(key)) this.#running.set(key, status);
        }
      }
      for (const status of ended) {
        const key = processKey(status);
        if (this.#running.has(key)) await this.#over(key, status);
      }
      for (const status of all) if (status.state === 'running') this.#follow(status);
      if (past?.kind === 'copied') past.onEndedBefore(ended.map(processKey));
      if (this.#queue.length > 0) this.#lookSoon();
    } catch {
      // A machine that can't be asked is about to be noticed by its own end.
    }
  }
}
