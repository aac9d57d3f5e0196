import {
  type CreateSandboxRequest,
  createdSandboxSchema,
  type SandboxEvent,
  type SandboxInfo,
  type SnapshotDiff,
  type SnapshotInfo,
  sandboxEventSchema,
  sandboxPageSchema,
  sandboxSchema,
  snapshotDiffSchema,
  snapshotListSchema,
  snapshotSchema,
} from '../wire/index.ts';
import { type InvokeAnswer, type InvokeCall, invoke } from './invoke.ts';
import { Sandbox } from './sandbox.ts';
import { type Calling, createSandboxCalls, type KeyedCalling, type SandboxCalls } from './sandbox-calls.ts';
import { queryOf, segment } from './segment.ts';
import { createTransport, type Transport, type TransportOptions } from './transport.ts';

/** What a new sandbox shall be; the fields are described in {@link CreateSandboxRequest}. One of the first two is needed. */
export type CreateSandboxOptions = Partial<CreateSandboxRequest> & KeyedCalling;

export interface SandboxQuery extends Calling {
  /** Default: all but `ended`. */
  readonly states?: readonly SandboxInfo['state'][] | undefined;
  readonly template?: string | undefined;
  /** All of these must hold. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

const pageSize = 200;

/** Sandboxes of one gateway. Every method rejects with `GatewayError`. */
export class Sandboxes {
  readonly #calls: SandboxCalls;

  /** @internal Use `snapgate.sandboxes`. */
  constructor(calls: SandboxCalls) {
    this.#calls = calls;
  }

  /**
   * Makes a sandbox from a template (`name`, `name@version`, `name@alias`) or a snapshot (id or `snapshot:name`).
   * @throws GatewayError `template_not_found`, `version_not_found`, `node_at_capacity`, `version_unavailable`
   */
  async create(options: CreateSandboxOptions): Promise<Sandbox> {
    const { signal, idempotencyKey, ...request } = options;
    const call = { signal, idempotencyKey };
    return new Sandbox(
      this.#calls,
      await this.#calls.once(createdSandboxSchema, '/v1/sandboxes', request, call),
    );
  }

  /** @throws GatewayError `sandbox_not_found` */
  async get(id: string, call: Calling = {}): Promise<Sandbox> {
    const info = await this.#calls.get(sandboxSchema, `/v1/sandboxes/${segment(id)}`, call);
    return new Sandbox(this.#calls, info);
  }

  /** Newest first; pages are fetched as they are needed. */
  async *list(query: SandboxQuery = {}): AsyncGenerator<Sandbox> {
    const { states, template, metadata, signal } = query;
    const pairs = Object.entries(metadata ?? {}).map(([key, value]) => `${key}=${value}`);
    for (let nextToken: string | null | undefined; nextToken !== null; ) {
      const filter = { state: states, template, metadata: pairs, limit: pageSize, nextToken };
      const page = await this.#calls.get(sandboxPageSchema, `/v1/sandboxes${queryOf(filter)}`, { signal });
      for (const info of page.items) yield new Sandbox(this.#calls, info);
      nextToken = page.nextToken;
    }
  }

  /** Snapshots of one sandbox, or of all. They form a tree by `parent`. */
  async snapshots(query: Calling & { readonly sandbox?: string | undefined } = {}): Promise<SnapshotInfo[]> {
    const path = `/v1/snapshots${queryOf({ sandbox: query.sandbox })}`;
    return (await this.#calls.get(snapshotListSchema, path, query)).items;
  }

  /** What was made from it lives on. @param snapshot id or `snapshot:name` */
  removeSnapshot(snapshot: string, call: Calling = {}): Promise<void> {
    return this.#calls.remove(`/v1/snapshots/${segment(snapshot)}`, call);
  }

  /** A pinned snapshot is kept whatever the limits of count and bytes say. */
  pinSnapshot(snapshot: string, isPinned: boolean, call: Calling = {}): Promise<SnapshotInfo> {
    return this.#calls.put(snapshotSchema, `/v1/snapshots/${segment(snapshot)}/pin`, { isPinned }, call);
  }

  /** Files and processes that differ between two snapshots. */
  diff(from: string, to: string, call: Calling = {}): Promise<SnapshotDiff> {
    return this.#calls.get(snapshotDiffSchema, `/v1/snapshots/diff${queryOf({ from, to })}`, call);
  }

  /**
   * What happened to sandboxes after event number `since` (default 0: everything on record); with `follow` also what
   * happens from now on, until the iteration ends.
   */
  events(
    query: Calling & {
      readonly since?: number | undefined;
      readonly follow?: boolean | undefined;
      readonly sandbox?: string | undefined;
    } = {},
  ): AsyncGenerator<SandboxEvent> {
    const { signal, ...filter } = query;
    return this.#calls.transport.lines(sandboxEventSchema, {
      method: 'GET',
      path: `/v1/events${queryOf(filter)}`,
      ...(signal === undefined ? {} : { signal }),
    });
  }
}

/**
 * One gateway, over `fetch` alone: Node ≥ 20, Deno, Bun, browsers. Nothing is connected or kept, so there is nothing to close.
 * Calls that may be repeated are, up to five times, when no answer came or a 503 says that it will pass.
 */
export class Snapgate {
  readonly sandboxes: Sandboxes;
  readonly #transport: Transport;

  /** @throws GatewayError `invalid_request` for an unusable `url` */
  constructor(options: TransportOptions) {
    this.#transport = createTransport(options);
    this.sandboxes = new Sandboxes(createSandboxCalls(this.#transport));
  }

  /** Address of the gateway, without a slash at its end. */
  get url(): string {
    return this.#transport.url;
  }

  /**
   * Calls a template's function (`name`, `name@version`, `name@alias`); repeated by itself only under an `idempotencyKey`.
   * @returns the function's own answer, whatever its status, and how it came to be
   * @throws GatewayError for errors that Snapgate made
   */
  invoke(template: string, request: InvokeCall = {}): Promise<InvokeAnswer> {
    return invoke(this.#transport, template, request);
  }
}
