/** What a gateway asks of an edge about sandboxes; part of the one contract beside `port.ts`. The node owns their state. */
import type { Duplex } from 'node:stream';
import type {
  CreatedSandbox,
  CreateSandboxRequest,
  CreateSnapshotRequest,
  ForkRequest,
  ForkResult,
  MachineId,
  NetworkChoice,
  SandboxEvent,
  SandboxId,
  SandboxInfo,
  SandboxNetwork,
  SnapshotInfo,
  VersionDigest,
} from '../../sdk/index.ts';
import type { SandboxChannel } from '../guest/index.ts';

/** Where a new sandbox's state comes from; the gateway has resolved names. */
export type SandboxOrigin =
  | {
      readonly kind: 'version';
      readonly digest: VersionDigest;
      readonly template: string;
      readonly version: string;
    }
  | { readonly kind: 'snapshot'; readonly snapshot: string };

export interface SandboxFilter {
  readonly states?: readonly SandboxInfo['state'][];
  readonly template?: string;
  readonly metadata?: Readonly<Record<string, string>>;
}

/** Holds a sandbox still for the length of one use: pauses wait for it (drain), and it waits for them. Dispose to let go. */
export interface SandboxUse extends Disposable {
  readonly machine: MachineId;
  readonly sandbox: SandboxInfo;
  readonly channel: SandboxChannel;
  /** Aborts when the sandbox ends or its drain deadline passed. */
  readonly signal: AbortSignal;
  /** Env that every command sees: its template's, the sandbox's own, and its secrets; the later win. */
  readonly env: Readonly<Record<string, string>>;
  /** A byte tunnel to a port of it. */
  tunnel(port: number): Promise<Duplex>;
}

export interface SandboxEdge {
  /**
   * @param options.network rules of its own in either way of writing them; wins over `request.network`. Throws `invalid_request`
   *   for rules that mean nothing, and `conflict` where they allow something and the template has no network card.
   */
  create(
    origin: SandboxOrigin,
    request: CreateSandboxRequest,
    options: { readonly signal: AbortSignal; readonly network?: NetworkChoice },
  ): Promise<CreatedSandbox>;
  /** Ended ones too, for a stated time. Throws `sandbox_not_found`. */
  get(id: SandboxId): Promise<SandboxInfo>;
  list(filter: SandboxFilter): Promise<SandboxInfo[]>;
  setDeadline(
    id: SandboxId,
    deadlineMs: number,
    options: { readonly onlyExtend: boolean },
  ): Promise<SandboxInfo>;
  /** Idempotent, in any state; resolves when nothing of it is left but its record. */
  kill(id: SandboxId): Promise<SandboxInfo>;
  pause(id: SandboxId, options: { readonly signal: AbortSignal }): Promise<SandboxInfo>;
  resume(
    id: SandboxId,
    options: { readonly signal: AbortSignal; readonly deadlineMs?: number },
  ): Promise<CreatedSandbox>;
  fork(id: SandboxId, request: ForkRequest, options: { readonly signal: AbortSignal }): Promise<ForkResult>;
  snapshot(
    id: SandboxId,
    request: CreateSnapshotRequest,
    options: { readonly signal: AbortSignal },
  ): Promise<SnapshotInfo>;
  rewind(id: SandboxId, snapshot: string, options: { readonly signal: AbortSignal }): Promise<SandboxInfo>;
  snapshots(filter: { readonly sandbox?: SandboxId }): Promise<SnapshotInfo[]>;
  removeSnapshot(snapshot: string): Promise<void>;
  pinSnapshot(snapshot: string, isPinned: boolean): Promise<SnapshotInfo>;
  /** Changed files and processes between two snapshots. */
  diff(
    from: string,
    to: string,
    options: { readonly signal: AbortSignal },
  ): Promise<{
    readonly files: { readonly path: string; readonly change: 'added' | 'changed' | 'removed' }[];
    readonly processes: {
      readonly pid: number;
      readonly command: string;
      readonly change: 'started' | 'ended';
    }[];
  }>;
  /** History after `since` (a sequence number), then live events when `follow`. */
  events(options: {
    readonly since: number;
    readonly follow: boolean;
    readonly sandbox?: SandboxId;
    readonly signal: AbortSignal;
  }): AsyncIterable<SandboxEvent>;
  /**
   * For commands, files and ports. Waits while the sandbox is in transition (up to its drain deadline, then
   * `version_unavailable`-like 503 with Retry-After), resumes a paused one when `autoResume`; else `conflict` for paused ones.
   */
  use(id: SandboxId, options: { readonly signal: AbortSignal }): Promise<SandboxUse>;
  /** Rules in force and what they refused lately; of an ended one as well. */
  network(id: SandboxId): Promise<SandboxNetwork>;
  /**
   * Replaces its rules while it runs and cuts connections that are no longer allowed; a paused one wakes up with them. Forks and
   * snapshots from now on inherit them. Null: the template's again. Throws as `create` does.
   */
  setNetwork(id: SandboxId, choice: NetworkChoice | null): Promise<SandboxInfo>;
  /** Constant-time comparison with the sandbox's token. */
  isToken(id: SandboxId, token: string): Promise<boolean>;
}
