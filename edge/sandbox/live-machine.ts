/** The machine of a running sandbox, whether it came out of a pool, was restored here, or was taken over after a restart. */
import type { Lease } from '../../pool/index.ts';
import type { MachineId } from '../../sdk/index.ts';
import type { SandboxChannel } from '../guest/index.ts';
import type { RunningVmm, VmmExit } from '../vmm/port.ts';

/** How a machine came to its end. `exit` is null when its channel was lost and the VMM still ran. */
export interface MachineEnd {
  readonly exit: VmmExit | null;
}

/** What a restore took, part after part, in milliseconds. */
export interface RestoreParts {
  /** Until its turn came among the restores of the node. */
  readonly waitMs: number;
  /** Until a blank was there, which none of is when one was waiting. */
  readonly blankMs: number;
  /** Disk layers, dirty pages and network. */
  readonly fillMs: number;
  /** Device state, and the guest runs. */
  readonly loadMs: number;
  /** Until the agent had greeted us, with clock stepped and entropy stirred. */
  readonly greetMs: number;
  /** Names, token, and the clock within bounds. */
  readonly identityMs: number;
  /** The template's own hook. */
  readonly hookMs: number;
}

/** Owns VMM and channel, and the pool's lease where there is one. */
export class LiveMachine {
  readonly id: MachineId;
  readonly channel: SandboxChannel;
  /** What the agent expects of its host; 64 hex digits. */
  readonly channelToken: string;
  /** Of a machine that was restored here; null otherwise. */
  readonly parts: RestoreParts | null;
  /** Settles when the machine ended or can't be reached any more. Never rejects; never settles after `detach`. */
  readonly gone: Promise<MachineEnd>;
  #running: RunningVmm;
  readonly #lease: Lease | null;
  #isEnding = false;
  #folding: Promise<void> | null = null;

  constructor(parts: {
    readonly vmm: RunningVmm;
    readonly channel: SandboxChannel;
    readonly channelToken: string;
    readonly lease: Lease | null;
    readonly parts?: RestoreParts;
  }) {
    this.id = parts.vmm.id;
    this.#running = parts.vmm;
    this.channel = parts.channel;
    this.channelToken = parts.channelToken;
    this.parts = parts.parts ?? null;
    this.#lease = parts.lease;
    const { promise, resolve } = Promise.withResolvers<MachineEnd>();
    this.gone = promise;
    void parts.vmm.exited.then((exit) => resolve({ exit }));
    void parts.channel.closed.then(() => this.#channelLost(resolve));
  }

  /** The VMM while the guest runs. */
  get running(): RunningVmm {
    return this.#running;
  }

  /** The guest runs again after it was stopped. */
  goOn(vmm: RunningVmm): void {
    this.#running = vmm;
  }

  /** A VMM that dies takes its channel along: its own end says more, so it gets a moment to be noticed. */
  #channelLost(resolve: (end: MachineEnd) => void): void {
    if (this.#isEnding) return;
    setTimeout(() => resolve({ exit: null }), 1_000).unref();
  }

  /** Begins to copy the frozen layers of the disk into the writable one, unless that is under way. */
  foldDisk(onError: (error: unknown) => void): void {
    this.#folding ??= this.#running
      .foldDisk()
      .catch(onError)
      .finally(() => {
        this.#folding = null;
      });
  }

  /** Resolves when the layers of the disk do not change by themselves; to be awaited before a capture. */
  async diskSettled(): Promise<void> {
    await this.#folding;
  }

  /** Ends it now and removes what it owned. Idempotent. */
  async end(reason: string): Promise<void> {
    this.#isEnding = true;
    try {
      await this.#running.dispose();
    } finally {
      this.channel.close();
      this.#lease?.release('discard', reason);
    }
  }

  /** Lets go of it: the VMM runs on, for a later edge to take over. */
  async detach(): Promise<void> {
    this.#isEnding = true;
    await this.#running.detach();
    this.channel.close();
    this.#lease?.release('discard', 'detached');
  }
}
