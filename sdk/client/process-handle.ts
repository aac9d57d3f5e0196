import type { ProcessStatusInfo, TerminalSize } from '../wire/index.ts';
import { processStatusSchema, stdinAcceptedSchema } from '../wire/index.ts';
import { type OutputReading, readOutput } from './output-reader.ts';
import { withRetries } from './retry.ts';
import type { Calling, SandboxCalls } from './sandbox-calls.ts';
import { segment } from './segment.ts';

/** One request of input carries at most this much. */
const stdinBytes = 256 * 1024;
/** How long one request waits for an exit; then the next one does. Below the deadline of a request. */
const waitMs = 20_000;

/**
 * A process in a sandbox. It lives there, not here: dropping the handle or losing the connection does nothing to it, and
 * `sandbox.process(id)` finds it again, also after a pause and in a forked child.
 */
export class ProcessHandle {
  /** As it was started with; unique among running processes of its sandbox. */
  readonly id: string;
  readonly #calls: SandboxCalls;
  readonly #path: string;
  /** Where the next input goes; unknown until the first write of a handle that was found again. */
  #stdinOffset: number | undefined;
  #writing: Promise<unknown> = Promise.resolve();

  /** @internal Made by `sandbox.start`, `sandbox.pty` and `sandbox.process`. */
  constructor(calls: SandboxCalls, sandboxPath: string, id: string, stdinOffset?: number) {
    this.id = id;
    this.#calls = calls;
    this.#path = `${sandboxPath}/processes/${segment(id)}`;
    this.#stdinOffset = stdinOffset;
  }

  /** As it is now. @throws GatewayError `process_not_found` when its record is gone */
  status(call: Calling = {}): Promise<ProcessStatusInfo> {
    return this.#calls.get(processStatusSchema, this.#path, call);
  }

  /**
   * Resolves when it has exited, however long that takes; the signal ends the waiting, not the process. A non-zero exit is
   * no error.
   * @throws GatewayError `process_not_found`, `sandbox_not_found`, `cancelled`; `version_unavailable` when the sandbox was
   * paused for more than some seconds: wait again after its resume
   */
  async wait(call: Calling = {}): Promise<ProcessStatusInfo> {
    for (;;) {
      const status = await this.#calls.get(
        processStatusSchema,
        `${this.#path}/wait?timeoutMs=${waitMs}`,
        call,
      );
      if (status.state === 'exited') return status;
    }
  }

  /**
   * Sends a signal to its process group. Default 9, which also takes descendants that left the group.
   * @param signal number, 1 to 64
   */
  kill(signal = 9, call: Calling = {}): Promise<void> {
    return this.#calls.tell(`${this.#path}/signal`, { signal }, call);
  }

  /** Kills it with all its descendants and forgets it, its output too. */
  remove(call: Calling = {}): Promise<void> {
    return this.#calls.remove(this.#path, call);
  }

  /** Bytes it wrote to stdout; see {@link readOutput}. Of a terminal use `output()`. */
  stdout(options: OutputReading = {}): AsyncGenerator<Uint8Array> {
    return readOutput(this.#calls.transport, `${this.#path}/output/stdout`, options);
  }

  /** Bytes it wrote to stderr. */
  stderr(options: OutputReading = {}): AsyncGenerator<Uint8Array> {
    return readOutput(this.#calls.transport, `${this.#path}/output/stderr`, options);
  }

  /** What its terminal shows. Only for processes with a terminal. */
  output(options: OutputReading = {}): AsyncGenerator<Uint8Array> {
    return readOutput(this.#calls.transport, `${this.#path}/output/pty`, options);
  }

  /**
   * Writes to its input, in the order of the calls, and resolves when the process's pipe took all of it. Safe under
   * retries: each byte has its offset.
   * @throws GatewayError `conflict` when its input is closed, was not opened, or somebody else writes to it
   */
  write(data: string | Uint8Array, call: Calling = {}): Promise<void> {
    return this.#send(typeof data === 'string' ? new TextEncoder().encode(data) : data, false, call);
  }

  /** Ends its input; a terminal gets its end-of-file character. */
  closeStdin(call: Calling = {}): Promise<void> {
    return this.#send(new Uint8Array(), true, call);
  }

  /** Tells its terminal a new size, in characters. */
  resize(size: TerminalSize, call: Calling = {}): Promise<void> {
    return withRetries(() => this.#calls.tell(`${this.#path}/resize`, size, call), call);
  }

  #send(bytes: Uint8Array, isLast: boolean, call: Calling): Promise<void> {
    const turn = this.#writing.then(async () => {
      let rest = bytes;
      do {
        const part = rest.subarray(0, stdinBytes);
        rest = rest.subarray(part.length);
        await this.#sendPart(part, isLast && rest.length === 0, call);
      } while (rest.length > 0);
    });
    this.#writing = turn.catch(() => {});
    return turn;
  }

  async #sendPart(part: Uint8Array, isLast: boolean, call: Calling): Promise<void> {
    this.#stdinOffset ??= (await this.status(call)).stdinBytes;
    const path = `${this.#path}/stdin?offset=${this.#stdinOffset}${isLast ? '&close=true' : ''}`;
    const taken = await withRetries(
      () =>
        this.#calls.transport.json(stdinAcceptedSchema, {
          method: 'PUT',
          path,
          body: part,
          headers: { 'content-type': 'application/octet-stream' },
          // A process may take its time to read.
          timeoutMs: 2 ** 31 - 1,
          ...(call.signal === undefined ? {} : { signal: call.signal }),
        }),
      call,
    );
    this.#stdinOffset = taken.offset;
  }
}
