import { fromProblem, type GatewayError } from '../errors.ts';
import { randomName } from '../ids.ts';
import {
  type CreatedSandbox,
  createdSandboxSchema,
  type ForkResult,
  forkResultSchema,
  type ProcessStatusInfo,
  processListSchema,
  processStatusSchema,
  type SandboxInfo,
  type SandboxNetwork,
  type SnapshotInfo,
  sandboxNetworkSchema,
  sandboxSchema,
  snapshotSchema,
  type TerminalSize,
} from '../wire/index.ts';
import { ProcessHandle } from './process-handle.ts';
import { type CommandResult, followRun, type RunOptions, type StartOptions, startRequest } from './run.ts';
import type { Calling, KeyedCalling, SandboxCalls } from './sandbox-calls.ts';
import { SandboxFiles } from './sandbox-files.ts';
import { createSandboxPort, type SandboxPort } from './sandbox-port.ts';
import { segment } from './segment.ts';

export interface ForkOptions extends KeyedCalling {
  /** 1 to 100. Default 1. */
  readonly count?: number | undefined;
  /** Life of each child from now on, milliseconds. Default: what is left of the source's. */
  readonly deadlineMs?: number | undefined;
  /** Merged over the source's. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** What came of a fork. Children and failures together are as many as were asked for. */
export interface Forked {
  readonly children: readonly Sandbox[];
  /** Why there are fewer children than were asked for. */
  readonly failures: readonly GatewayError[];
  /** What the children do not have of their source, such as `secret NAME`. */
  readonly notInherited: readonly string[];
  /** How long the source stood still, milliseconds, and why. */
  readonly timing: ForkResult['timing'];
}

/**
 * A leased machine. Every method rejects with `GatewayError`; `sandbox_not_found` once it ended. `await using` kills it at the
 * end of the block.
 */
export class Sandbox implements AsyncDisposable {
  readonly id: string;
  readonly files: SandboxFiles;
  readonly #calls: SandboxCalls;
  readonly #path: string;
  #info: SandboxInfo;
  #token: string | null;

  /** @internal Made by `snapgate.sandboxes` and by forks. */
  constructor(calls: SandboxCalls, info: SandboxInfo | CreatedSandbox) {
    this.id = info.id;
    this.#calls = calls;
    this.#path = `/v1/sandboxes/${segment(info.id)}`;
    this.#token = 'token' in info ? info.token : null;
    this.#info = info;
    this.files = new SandboxFiles(calls, this.#path);
  }

  /** What was last heard of it; {@link refresh} asks again. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** Opens this sandbox's processes, files and ports to whoever has it. Null when it was not created or resumed here. */
  get token(): string | null {
    return this.#token;
  }

  /** Asks how it is. Still answers for some time after its end, with `termination`. */
  async refresh(call: Calling = {}): Promise<SandboxInfo> {
    return this.#note(await this.#calls.get(sandboxSchema, this.#path, call));
  }

  /**
   * Runs a command to its end. A text goes through a login shell, a list is run as it is. A non-zero exit is no error: look at
   * `exitCode`, `signal`, `isTimedOut` and `isOutOfMemory`. When the signal fires, the command is killed.
   * @throws GatewayError `file_not_found` when there is no such command, `cancelled`, `conflict` when the sandbox is paused
   */
  async run(command: string | readonly string[], options: RunOptions = {}): Promise<CommandResult> {
    const id = options.id ?? randomName(20);
    const started = this.#start(command, { ...options, id }, { stdin: options.stdin !== undefined });
    const process = await started.catch(async (error: unknown) => {
      // It may have been started although we did not wait for the answer.
      if (options.signal?.aborted)
        await this.process(id)
          .kill()
          .catch(() => {});
      throw error;
    });
    return followRun(process, options);
  }

  /**
   * Starts a command and comes back at once; it goes on without us. Its stdin is open: `write` to it, or `closeStdin`.
   * @throws GatewayError `conflict` when a process with this id runs
   */
  start(command: string | readonly string[], options: StartOptions = {}): Promise<ProcessHandle> {
    return this.#start(command, options, { stdin: true });
  }

  /** Starts a command on a terminal of its own. @param options.command default: a login shell */
  pty(
    options: StartOptions & TerminalSize & { readonly command?: string | readonly string[] | undefined },
  ): Promise<ProcessHandle> {
    const { cols, rows, command = 'exec "$SHELL" -l' } = options;
    return this.#start(command, options, { stdin: true, pty: { cols, rows } });
  }

  /** A process that was started before, by its id; nothing is asked until the handle is. */
  process(id: string): ProcessHandle {
    return new ProcessHandle(this.#calls, this.#path, id);
  }

  /** Processes on record, in the order of their start. */
  async processes(call: Calling = {}): Promise<ProcessStatusInfo[]> {
    return (await this.#calls.get(processListSchema, `${this.#path}/processes`, call)).items;
  }

  /** A port on which an HTTP server listens inside. */
  port(port: number): SandboxPort {
    return createSandboxPort(this.#calls.transport, this.#path, port, this.#token);
  }

  /**
   * Makes children that go on from its present memory and disk. It stands still for some milliseconds only.
   * @throws GatewayError `conflict` while it is in transition, `node_at_capacity` when there is no room for a single child
   */
  async fork(options: ForkOptions = {}): Promise<Forked> {
    const { count, deadlineMs, metadata, ...call } = options;
    const body = { count, deadlineMs, metadata };
    const result = await this.#calls.once(forkResultSchema, `${this.#path}/fork`, body, call);
    const children: Sandbox[] = [];
    const failures: GatewayError[] = [];
    for (const child of result.children) {
      if ('sandbox' in child) children.push(new Sandbox(this.#calls, child.sandbox));
      else failures.push(fromProblem(child.error, 'edge'));
    }
    return { children, failures, notInherited: result.notInherited, timing: result.timing };
  }

  /**
   * Puts it on disk, memory and all. It then holds no memory and no deadline kills it before its time.
   * @throws GatewayError `conflict` while it is in transition, `disk_full`; it then runs on
   */
  async pause(call: Calling = {}): Promise<SandboxInfo> {
    return this.#note(await this.#calls.post(sandboxSchema, `${this.#path}/pause`, undefined, call));
  }

  /** Goes on where it was paused. @param call.deadlineMs life from now on */
  async resume(call: Calling & { readonly deadlineMs?: number | undefined } = {}): Promise<SandboxInfo> {
    const body = { deadlineMs: call.deadlineMs };
    const { token, ...info } = await this.#calls.post(
      createdSandboxSchema,
      `${this.#path}/resume`,
      body,
      call,
    );
    this.#token = token;
    return this.#note(info);
  }

  /** Keeps its present state, to start from or to come back to; it goes on. @param options.name then also `snapshot:name` */
  snapshot(
    options: KeyedCalling & {
      readonly name?: string | undefined;
      readonly isPinned?: boolean | undefined;
    } = {},
  ): Promise<SnapshotInfo> {
    const { name, isPinned, ...call } = options;
    return this.#calls.once(snapshotSchema, `${this.#path}/snapshots`, { name, isPinned }, call);
  }

  /** Puts it back to one of its snapshots, in place: same id, everything since then is gone. */
  async rewind(snapshot: string | { readonly id: string }, call: Calling = {}): Promise<SandboxInfo> {
    const body = { snapshot: typeof snapshot === 'string' ? snapshot : snapshot.id };
    return this.#note(await this.#calls.post(sandboxSchema, `${this.#path}/rewind`, body, call));
  }

  /** Moves its deadline to `deadlineMs` from now. @param call.onlyExtend never earlier than it is: a keep-alive */
  async setDeadline(
    deadlineMs: number,
    call: Calling & { readonly onlyExtend?: boolean | undefined } = {},
  ): Promise<SandboxInfo> {
    const body = { deadlineMs, onlyExtend: call.onlyExtend };
    return this.#note(await this.#calls.put(sandboxSchema, `${this.#path}/deadline`, body, call));
  }

  /** Network rules in force, and what they refused lately. */
  network(call: Calling = {}): Promise<SandboxNetwork> {
    return this.#calls.get(sandboxNetworkSchema, `${this.#path}/network`, call);
  }

  /**
   * Replaces all its network rules while it runs, and cuts connections that are no longer allowed; null: its template's again.
   * @throws GatewayError `invalid_request` for rules that mean nothing, `conflict` when its template has no network card
   */
  async setNetwork(
    rules: Readonly<Record<string, boolean>> | null,
    call: Calling = {},
  ): Promise<SandboxInfo> {
    return this.#note(await this.#calls.put(sandboxSchema, `${this.#path}/network`, { rules }, call));
  }

  /** Ends it, whatever its state. Doing so again changes nothing. */
  async kill(call: Calling = {}): Promise<void> {
    await this.#calls.remove(this.#path, call);
  }

  /** Kills it; one that is gone already is fine. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  #note(info: SandboxInfo): SandboxInfo {
    this.#info = info;
    return info;
  }

  async #start(
    command: string | readonly string[],
    options: StartOptions,
    more: Parameters<typeof startRequest>[2],
  ): Promise<ProcessHandle> {
    const request = startRequest(command, options, more);
    const { id } = await this.#calls.once(processStatusSchema, `${this.#path}/processes`, request, options);
    return new ProcessHandle(this.#calls, this.#path, id, 0);
  }
}
