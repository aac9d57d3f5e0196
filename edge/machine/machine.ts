import type { PoolMachine } from '../../pool/index.ts';
import type { MachineId, VersionDigest } from '../../sdk/index.ts';
import type { SandboxChannel } from '../guest/index.ts';
import type { PausedVmm, RunningVmm, VmmProcess } from '../vmm/port.ts';
import type { GuestHttp } from './guest-http.ts';
import type { RestorableVersion } from './restorable-version.ts';

export interface MachineParts {
  readonly version: RestorableVersion;
  /** What the agent in it expects of its host. */
  readonly channelToken: string;
  readonly digest: VersionDigest;
  readonly channel: SandboxChannel;
  /** Null for templates without a start command. */
  readonly http: GuestHttp | null;
  /** Clock, entropy, identity and the `afterRestore` hook; runs after each resume. */
  readonly enter: (
    channel: SandboxChannel,
    http: GuestHttp | null,
    options: { readonly signal: AbortSignal },
  ) => Promise<void>;
  readonly vmm: RunningVmm;
  readonly startedAt: number;
}

type Phase =
  | { readonly name: 'serving'; readonly vmm: RunningVmm }
  | { readonly name: 'parked'; readonly vmm: PausedVmm }
  | { readonly name: 'gone' };

/**
 * A restored machine with its channel: what the pool hands out and an invocation talks to. Owns VMM, channel and
 * connections; `dispose` ends them in the order process, then the rest.
 */
export class Machine implements PoolMachine {
  readonly id: MachineId;
  readonly digest: VersionDigest;
  readonly pid: number;
  readonly startedAt: number;
  readonly gone: Promise<{ readonly reason: string }>;
  readonly #parts: MachineParts;
  #phase: Phase;
  #disposed: Promise<void> | undefined;
  #reason: string | undefined;

  constructor(parts: MachineParts) {
    this.id = parts.vmm.id;
    this.digest = parts.digest;
    this.pid = parts.vmm.pid;
    this.startedAt = parts.startedAt;
    this.#parts = parts;
    this.#phase = { name: 'serving', vmm: parts.vmm };
    const exited = parts.vmm.exited.then(
      (exit) => this.#reason ?? `vmm ended (${exit.signalName ?? `exit code ${exit.exitCode}`})`,
    );
    const channelLost = parts.channel.closed.then(() => this.#reason ?? 'guest channel closed');
    this.gone = Promise.race([exited, channelLost]).then((reason) => {
      this.#phase = { name: 'gone' };
      return { reason };
    });
  }

  /** The VMM behind it, for page statistics and adoption; its phase is this machine's affair. */
  get vmm(): VmmProcess {
    return this.#parts.vmm;
  }

  /** The VMM while its guest runs, for a sandbox that takes it over; null when it is parked or gone. */
  get running(): RunningVmm | null {
    return this.#phase.name === 'serving' ? this.#phase.vmm : null;
  }

  /** What it was restored from. */
  get version(): RestorableVersion {
    return this.#parts.version;
  }

  /** What the agent in it expects of its host; 64 hex digits. */
  get channelToken(): string {
    return this.#parts.channelToken;
  }

  get channel(): SandboxChannel {
    return this.#parts.channel;
  }

  /** HTTP into the guest; null for templates without a start command. */
  get http(): GuestHttp | null {
    return this.#parts.http;
  }

  get isGone(): boolean {
    return this.#phase.name === 'gone';
  }

  async wake(options: { readonly signal: AbortSignal }): Promise<void> {
    if (this.#phase.name !== 'parked')
      throw new Error(`machine ${this.id} is ${this.#phase.name}, not parked`);
    this.#phase = { name: 'serving', vmm: await this.#phase.vmm.resume() };
    await this.enter(options);
  }

  /** What follows each resume: clock, entropy, identity, hook. A failure leaves the machine fit only for `dispose`. */
  async enter(options: { readonly signal: AbortSignal }): Promise<void> {
    await this.#parts.enter(this.#parts.channel, this.#parts.http, options);
  }

  async park(): Promise<void> {
    if (this.#phase.name !== 'serving')
      throw new Error(`machine ${this.id} is ${this.#phase.name}, not serving`);
    this.#phase = { name: 'parked', vmm: await this.#phase.vmm.pause() };
  }

  /** Last lines of the guest's console, for diagnosis. */
  consoleTail(): Promise<string> {
    return this.#parts.vmm.consoleTail();
  }

  dispose(reason: string): Promise<void> {
    this.#disposed ??= this.#dispose(reason);
    return this.#disposed;
  }

  async #dispose(reason: string): Promise<void> {
    this.#reason = reason;
    this.#phase = { name: 'gone' };
    try {
      await this.#parts.vmm.dispose();
    } finally {
      this.#parts.channel.close();
      await this.#parts.http?.destroy();
    }
  }
}
