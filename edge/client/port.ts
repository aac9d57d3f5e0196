/**
 * What a gateway asks of an edge. One contract, two transports: in one process (`createLocalEdge` in `edge/main.ts`)
 * and over HTTP (`createHttpEdgeClient`). Every method rejects with `GatewayError`; the edge's own admission is final.
 */
import type { Duplex, Readable } from 'node:stream';
import type {
  InvocationTiming,
  LogLine,
  MachineId,
  MachineInfo,
  NodeInfo,
  PoolInfo,
  StartType,
  TemplateName,
  VersionDigest,
  VersionFacts,
} from '../../sdk/index.ts';

/** A version which the gateway wants to be warm on this edge. */
export interface ServedVersion {
  readonly digest: VersionDigest;
  readonly template: TemplateName;
  readonly version: string;
}

export interface InvokeRequest {
  readonly requestId: string;
  readonly digest: VersionDigest;
  readonly method: string;
  /** Request target as the function shall see it: starts with `/`, query included, byte for byte as the client sent it. */
  readonly target: string;
  /** Name, value, name, value …; hop-by-hop headers already gone, `Host` and `X-Forwarded-*` already set. */
  readonly rawHeaders: readonly string[];
  /** Null when the request has no body (neither Content-Length nor Transfer-Encoding). */
  readonly body: Readable | null;
  /** Budget of the function's own time, from hand-over to response head; already the smaller of caller's and template's. */
  readonly timeoutMs: number;
  readonly session?: string;
  /** Aborts when the client went away. */
  readonly signal: AbortSignal;
}

export interface InvokeMeta {
  readonly machine: MachineId;
  readonly digest: VersionDigest;
  readonly start: StartType;
  readonly timing: InvocationTiming;
}

export interface InvokeResponse {
  readonly status: number;
  /** As the function sent them, order and case kept, hop-by-hop headers included (the gateway strips them). */
  readonly rawHeaders: readonly string[];
  /** Undecoded bytes. Destroying it aborts the function. Errors with `GatewayError` when the guest dies midway. */
  readonly body: Readable;
  /** Raw trailers, complete once the body has ended. */
  readonly trailers: () => readonly string[];
  readonly meta: InvokeMeta;
}

/** Answer to a request with `Upgrade`. The lease lasts until `socket` is closed by either side. */
export type UpgradeResponse =
  | {
      readonly isUpgraded: true;
      readonly status: 101;
      readonly rawHeaders: readonly string[];
      readonly socket: Duplex;
      readonly meta: InvokeMeta;
    }
  | ({ readonly isUpgraded: false } & InvokeResponse);

/** A line of build progress; the last one is the built version. Failures reject the iteration with `GatewayError`. */
export type BuildEvent =
  | {
      readonly type: 'task';
      readonly id: string;
      readonly title: string;
      readonly state: 'started' | 'done' | 'failed' | 'skipped';
      readonly ms?: number;
    }
  | { readonly type: 'output'; readonly id: string; readonly text: string }
  | {
      readonly type: 'built';
      readonly template: TemplateName;
      readonly definition: Readonly<Record<string, unknown>>;
      readonly unchanged: boolean;
      readonly facts: VersionFacts;
    };

export interface LogRequest {
  readonly digests: readonly VersionDigest[];
  readonly machine?: MachineId;
  readonly streams: readonly LogLine['stream'][];
  /** Lines of history per machine. */
  readonly tail: number;
  readonly follow: boolean;
  readonly signal: AbortSignal;
}

export interface EdgeClient {
  node(): Promise<NodeInfo>;
  invoke(request: InvokeRequest): Promise<InvokeResponse>;
  upgrade(request: InvokeRequest): Promise<UpgradeResponse>;
  /**
   * Builds, captures and verifies a version from a packed template folder (a gzipped tar with the definition as
   * `template.json` at its root). Nothing half-made stays behind. Does not serve it yet.
   */
  build(archive: Readable, options: { readonly signal: AbortSignal }): AsyncIterable<BuildEvent>;
  /** Declares all versions to keep warm; others drain. Resolves when each named version has one ready machine or failed. */
  setServing(
    versions: readonly ServedVersion[],
  ): Promise<{ readonly digest: VersionDigest; readonly error: string | null }[]>;
  /** Removes the snapshot of a version that serves no longer; `conflict` while it does. */
  removeVersion(digest: VersionDigest): Promise<void>;
  machines(): Promise<MachineInfo[]>;
  pools(): Promise<PoolInfo[]>;
  logs(request: LogRequest): AsyncIterable<LogLine>;
  /** Prometheus text of this edge. */
  metrics(): Promise<string>;
}
