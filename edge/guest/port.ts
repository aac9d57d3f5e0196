/** The guest channel: what the host can ask of the agent inside a machine. Everything it answers is untrusted. */
import type { Duplex, Readable } from 'node:stream';
import type { Termination } from '../../sdk/index.ts';

export interface ConnectOptions {
  /** The VMM's unix socket of the agent channel. */
  readonly socketPath: string;
  /** 64 hex digits; what the agent currently expects of its host. */
  readonly token: string;
  readonly signal: AbortSignal;
  /**
   * Steps the clock and adds fresh entropy while the guest is greeted, so that a restored machine needs no round trip of its own
   * for that; absent, the guest is left as it is. The clock is set `leadMs` ahead of the host's, for what the way there takes.
   */
  readonly wake?: { readonly leadMs: number };
}

/** One resume of any kind: sent after the last pause and before the first request. */
export interface ResumeRequest {
  readonly wallClockMs: number;
  /** At least 32 bytes, fresh for this resume. */
  readonly entropy: Uint8Array;
  /** Given together with `machineId` or not at all. */
  readonly hostname?: string;
  /** 32 hex digits for `/etc/machine-id`. */
  readonly machineId?: string;
  /** Replaces the channel token; the template's own is in its snapshot and known to all clones. */
  readonly token?: string;
}

export interface ResumeReport {
  /** Guest wall clock minus host's after the step, as the guest read it; |x| must be within 50 ms. */
  readonly clockSkewMs: number;
}

export interface ProcessSpec {
  /** Chosen by the caller; `[A-Za-z0-9_-]{1,64}`. */
  readonly id: string;
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Name in the guest's passwd. Default root. */
  readonly user?: string;
  readonly stdin?: boolean;
  readonly pty?: { readonly cols: number; readonly rows: number };
  readonly timeoutMs?: number;
  /** Kept with its record, for whoever looks for it later; `[A-Za-z0-9_-]{1,4096}`. */
  readonly note?: string;
}

export interface ProcessStatus {
  readonly id: string;
  readonly pid: number;
  readonly note?: string;
  readonly state: 'running' | 'exited';
  readonly exitCode: number | null;
  readonly signal: number | null;
  /** Ended by its own timeout. */
  readonly isTimedOut: boolean;
  readonly isOutOfMemory: boolean;
  /** Whether its output is one `pty` stream; `stdoutBytes` counts that stream then. */
  readonly isPty?: boolean;
  /** All bytes ever written by it, also those no longer retained. */
  readonly stdoutBytes?: number;
  readonly stderrBytes?: number;
  /** Bytes of input it has been given: the offset at which to go on. */
  readonly stdinBytes?: number;
  /** How an exited one ended, found by the edge and not said by the guest; only of processes of sandboxes. */
  readonly termination?: Termination;
}

export type OutputStream = 'stdout' | 'stderr' | 'pty';

export interface OutputOptions {
  /** First byte wanted; negative counts from the end. Default 0. Older bytes may have been dropped. */
  readonly offset?: number;
  /** Go on until the process has exited and all it wrote has been read. Default false. */
  readonly follow?: boolean;
  readonly signal: AbortSignal;
}

/** Output and the place of its first byte: later than was asked for when older bytes are no longer retained. */
export type OutputBody = Readable & { readonly offset: number };

/**
 * A session with one agent. Closing it harms no process in the guest. A signal ends its call and, where the call gives a
 * body, that body too; a tunnel, once open, is its owner's. A body that was cut off is an error, never a short read.
 */
export interface GuestChannel extends AsyncDisposable {
  /** Settles when the session ended (peer gone, protocol error, closed by us). Never rejects. */
  readonly closed: Promise<void>;
  ping(options: {
    readonly signal: AbortSignal;
  }): Promise<{ readonly version: string; readonly protocol: number }>;
  resume(request: ResumeRequest, options: { readonly signal: AbortSignal }): Promise<ResumeReport>;
  /** A byte tunnel to a TCP port inside the guest. Throws `function_port_closed` when nothing listens. */
  tunnel(port: number, options: { readonly signal: AbortSignal }): Promise<Duplex>;
  startProcess(spec: ProcessSpec, options: { readonly signal: AbortSignal }): Promise<ProcessStatus>;
  processStatus(id: string, options: { readonly signal: AbortSignal }): Promise<ProcessStatus>;
  /** Resolves when it has exited. */
  waitProcess(id: string, options: { readonly signal: AbortSignal }): Promise<ProcessStatus>;
  /** Output bytes from `offset` on; with `follow` until the process closed the stream. Retained tail is bounded by the agent. */
  processOutput(id: string, stream: OutputStream, options: OutputOptions): Promise<OutputBody>;
  signalProcess(id: string, signal: number, options: { readonly signal: AbortSignal }): Promise<void>;
  writeFile(
    path: string,
    body: Readable | Uint8Array,
    options: {
      readonly mode?: number;
      readonly user?: string;
      /** Extended attributes, whose names begin with `user.`; those of a file that is replaced go with it. */
      readonly attributes?: Readonly<Record<string, string>>;
      /** Missing directories above it that the user may not make are made all the same, and are the user's. */
      readonly ownParents?: boolean;
      readonly signal: AbortSignal;
    },
  ): Promise<void>;
  readFile(path: string, options: { readonly signal: AbortSignal }): Promise<Readable>;
  metrics(options: { readonly signal: AbortSignal }): Promise<GuestMetrics>;
  /** Flushes the guest's filesystems. */
  sync(options: { readonly signal: AbortSignal }): Promise<void>;
  /** Ends the session now. Idempotent. */
  close(): void;
}

export interface GuestMetrics {
  readonly memoryTotalBytes: number;
  readonly memoryUsedBytes: number;
  readonly memoryCacheBytes: number;
  readonly diskTotalBytes: number;
  readonly diskUsedBytes: number;
  readonly cpuCount: number;
  /** Busy share since the previous call, 0–100 × cpuCount. */
  readonly cpuUsedPercent: number;
  readonly processCount: number;
}

/** One directory entry. `path` and `name` come from the guest: never join them to a path of the host. */
export interface FileRow {
  readonly path: string;
  readonly name: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'device';
  readonly size: number;
  /** Permission bits, 0 to 0o7777. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Names by the guest's passwd and group, else the numbers. */
  readonly user: string;
  readonly group: string;
  readonly mtimeMs: number;
  /** Where a symbolic link points to. */
  readonly target?: string;
  /** Extended attributes below `user.`, when they were asked for and there are any; at most 8 KiB in all. */
  readonly attributes?: Readonly<Record<string, string>>;
}

export interface WatchEvent {
  /** `rename` names the old path, its new one is a `create`. After `overflow` events were lost: look again. */
  readonly type: 'create' | 'write' | 'remove' | 'rename' | 'chmod' | 'overflow';
  readonly path: string;
}

interface FileOptions {
  readonly signal: AbortSignal;
  /** Acts with this user's rights; root's without it. */
  readonly user?: string;
}

/** What sandboxes need beyond what functions need. `connectGuest` gives this one. */
export interface SandboxChannel extends GuestChannel {
  listProcesses(options: { readonly signal: AbortSignal }): Promise<ProcessStatus[]>;
  /**
   * Input of a process that was started with `stdin` or `pty`. Bytes below the accepted offset are skipped, so that a
   * retry is harmless; a gap, a second writer at the same time or closed input is `conflict`.
   */
  writeStdin(
    id: string,
    body: Uint8Array,
    options: { readonly offset: number; readonly isLast?: boolean; readonly signal: AbortSignal },
  ): Promise<{ readonly offset: number }>;
  resizeTerminal(
    id: string,
    size: { readonly cols: number; readonly rows: number },
    options: { readonly signal: AbortSignal },
  ): Promise<void>;
  /** Kills it with all its descendants and forgets it. */
  deleteProcess(id: string, options: { readonly signal: AbortSignal }): Promise<void>;
  readFile(
    path: string,
    options: FileOptions & { readonly offset?: number; readonly length?: number },
  ): Promise<Readable>;
  /** Of the entry itself, also when it is a symbolic link. */
  statFile(path: string, options: FileOptions & { readonly withAttributes?: boolean }): Promise<FileRow>;
  /** Entries below a directory, down to `depth` levels (default 1, at most 64); at most 100,000 rows. */
  listFiles(
    path: string,
    options: FileOptions & { readonly depth?: number; readonly withAttributes?: boolean },
  ): Promise<AsyncIterable<FileRow>>;
  /** Parents are made too. `conflict` when it exists. */
  makeDirectory(path: string, options: FileOptions & { readonly mode?: number }): Promise<void>;
  /** Within one file system; a file at the target is replaced. */
  moveFile(from: string, to: string, options: FileOptions): Promise<void>;
  deleteFile(path: string, options: FileOptions & { readonly isRecursive?: boolean }): Promise<void>;
  /** Ends when the directory is gone, the signal aborts or the reader stops. */
  watchFiles(
    path: string,
    options: FileOptions & { readonly isRecursive?: boolean },
  ): Promise<AsyncIterable<WatchEvent>>;
}
