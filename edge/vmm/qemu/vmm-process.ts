/** One QEMU process with its control and console connections: the identity behind the typed phases. */
import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ErrorCode, GatewayError, type MachineId } from '../../../sdk/index.ts';
import type { VmmExit } from '../port.ts';
import { type ConsoleReader, connectConsole } from './console-reader.ts';
import { SaveRefused } from './device-state.ts';
import { DiskLayers } from './disk-layers.ts';
import { errnoOf, toVmmError } from './failure.ts';
import { begin, finish, type Lifecycle, revert, type Step } from './lifecycle.ts';
import { type MachineFiles, machineFiles } from './machine-files.ts';
import { type OwnerRecord, writeOwnerRecord } from './owner-record.ts';
import type { ProcessHandle } from './process-handle.ts';
import { connectQmp, type QmpClient } from './qmp-client.ts';
import { boundStderr, stderrTail } from './stderr-file.ts';

/** SIGKILL to death; a process in uninterruptible sleep may exceed it and is then reported. */
const killDeadlineMs = 5000;
/** A VMM whose control socket closed has this long to end by itself before it is killed. */
const orphanDeadlineMs = 1000;
/** The console's last bytes arrive with the socket's end, right after the process's. */
const lastWordsMs = 500;
const stderrCheckMs = 5000;

interface FailureCodes {
  readonly failed: ErrorCode;
  readonly timeout: ErrorCode;
}

/** Owns the process, its connections and its directory. Disposing ends all three. */
export class VmmProcess {
  readonly id: MachineId;
  readonly files: MachineFiles;
  readonly exited: Promise<VmmExit>;
  readonly disk: DiskLayers;
  #record: OwnerRecord;
  #handle: ProcessHandle;
  #lifecycle: Lifecycle = { phase: 'starting' };
  #qmp: QmpClient | null = null;
  #console: ConsoleReader | null = null;
  #isEndExpected = false;
  #isDetached = false;
  #disposal: Promise<void> | null = null;
  #stderrTimer: NodeJS.Timeout;

  constructor(directory: string, record: OwnerRecord, handle: ProcessHandle) {
    this.id = record.id;
    this.files = machineFiles(directory);
    this.#record = record;
    this.#handle = handle;
    this.disk = new DiskLayers(this.files, () => this.qmp);
    this.#stderrTimer = setInterval(() => void boundStderr(this.files.stderr), stderrCheckMs);
    this.#stderrTimer.unref();
    this.exited = handle.ended.then(async ({ exitCode, signalName }) => {
      this.#lifecycle = { phase: 'over' };
      clearInterval(this.#stderrTimer);
      await Promise.race([this.#console?.ended, sleep(lastWordsMs, undefined, { ref: false })]);
      return {
        exitCode,
        signalName,
        isExpected: this.#isEndExpected,
        stderrTail: await stderrTail(this.files.stderr),
        consoleTail: this.consoleTail(),
      };
    });
  }

  get pid(): number {
    return this.#handle.pid;
  }
  get record(): OwnerRecord {
    return this.#record;
  }
  get phase(): Lifecycle['phase'] {
    return this.#lifecycle.phase;
  }
  /** The control connection; only between {@link attach} and the end. */
  get qmp(): QmpClient {
    if (this.#qmp === null)
      throw new GatewayError('vmm_failed', 'the VMM is not connected', { component: 'edge' });
    return this.#qmp;
  }

  consoleTail(): string {
    return this.#console?.text() ?? '';
  }

  /** Connects to a VMM that may still be starting. Rejects when it ends first. Does not dispose. */
  async attach(signal: AbortSignal): Promise<void> {
    const ended = this.#handle.ended.then(() => 'ended' as const);
    for (;;) {
      signal.throwIfAborted();
      try {
        this.#qmp = await connectQmp(this.files.qmpSocket, { signal });
        break;
      } catch (error) {
        // Not there yet, or bound and not listening yet.
        if (!['ENOENT', 'ECONNREFUSED'].includes(errnoOf(error) ?? '')) throw error;
      }
      if ((await Promise.race([ended, sleep(2)])) === 'ended')
        throw new GatewayError('vmm_failed', 'the VMM ended while it started', { component: 'edge' });
    }
    void this.#qmp.closed.then(() => this.#onDisconnect());
    this.#console = await connectConsole(this.files.consoleSocket, signal);
  }

  /** For an adopted VMM, whose phase was read from it. */
  assumePhase(phase: 'blank' | 'paused' | 'running'): void {
    this.#lifecycle = { phase };
  }

  /**
   * Runs one step. A failure ends the VMM (its state is unknown) and becomes a `GatewayError` with its last lines,
   * except {@link SaveRefused}, after which it is as before.
   */
  async step<T>(step: Step, what: string, codes: FailureCodes, action: () => Promise<T>): Promise<T> {
    this.#lifecycle = begin(this.#lifecycle, step);
    try {
      const result = await action();
      this.#lifecycle = finish(this.#lifecycle);
      return result;
    } catch (error) {
      if (error instanceof SaveRefused && this.#lifecycle.phase === 'busy') {
        this.#lifecycle = revert(this.#lifecycle);
        throw toVmmError(error.cause, what, codes, await this.#lastLines());
      }
      throw await this.fail(error, what, codes);
    }
  }

  /** Does something that leaves the phase as it is and harms nothing when it fails. */
  async attempt<T>(what: string, codes: FailureCodes, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (error) {
      throw toVmmError(error, what, codes, await this.#lastLines());
    }
  }

  async #lastLines() {
    return { stderr: await stderrTail(this.files.stderr), console: this.consoleTail() };
  }

  /** Disposes and answers the error to throw, with the last lines of VMM and guest. */
  async fail(cause: unknown, what: string, codes: FailureCodes): Promise<GatewayError> {
    this.#handle.kill();
    const exit = await this.#exitWithin(killDeadlineMs);
    const lines = { stderr: exit?.stderrTail ?? '', console: exit?.consoleTail ?? this.consoleTail() };
    const error = toVmmError(cause, what, codes, lines);
    await this.dispose().catch(() => {});
    return error;
  }

  /** Marks the coming end as asked for and waits for it; kills when it does not come. */
  async awaitEnd(timeoutMs: number): Promise<void> {
    this.#isEndExpected = true;
    if ((await this.#exitWithin(timeoutMs)) === null) this.#handle.kill();
    await this.exited;
  }

  async annotate(note: unknown): Promise<void> {
    const record = { ...this.#record, note };
    await writeOwnerRecord(this.files.ownerRecord, record);
    this.#record = record;
  }

  /** Closes our connections and stops watching; the VMM goes on. */
  detach(): void {
    this.#isDetached = true;
    this.#lifecycle = { phase: 'over' };
    clearInterval(this.#stderrTimer);
    this.#handle.release();
    this.#qmp?.close();
    this.#console?.close();
  }

  /** See the port. A failed attempt may be repeated. */
  dispose(): Promise<void> {
    this.#disposal ??= this.#dispose().catch((error: unknown) => {
      this.#disposal = null;
      throw error;
    });
    return this.#disposal;
  }

  /** Null when it does not end in time; leaves no timer behind that would keep the edge alive. */
  async #exitWithin(timeoutMs: number): Promise<VmmExit | null> {
    const deadline = new AbortController();
    const late = sleep(timeoutMs, null, { signal: deadline.signal }).catch(() => null);
    const exit = await Promise.race([this.exited, late]);
    deadline.abort();
    return exit;
  }

  async #dispose(): Promise<void> {
    if (this.#isDetached) return;
    this.#isEndExpected = true;
    this.#lifecycle = { phase: 'over' };
    this.#handle.kill();
    this.#handle.check();
    const exit = await this.#exitWithin(killDeadlineMs);
    this.#qmp?.close();
    this.#console?.close();
    clearInterval(this.#stderrTimer);
    // The record stays with a process that would not die, so that the next edge finds it.
    if (exit === null)
      throw new GatewayError(
        'vmm_failed',
        `process ${this.pid} of machine ${this.id} did not end when killed`,
        {
          component: 'edge',
        },
      );
    this.#handle.release();
    await rm(this.files.path, { recursive: true, force: true, maxRetries: 3 });
  }

  /** Without its control socket a VMM can't be steered any more, so it must not live on. */
  #onDisconnect(): void {
    if (this.#isDetached) return;
    this.#handle.check();
    const timer = setTimeout(() => this.#handle.kill(), orphanDeadlineMs);
    timer.unref();
    void this.#handle.ended.then(() => clearTimeout(timer));
  }
}
