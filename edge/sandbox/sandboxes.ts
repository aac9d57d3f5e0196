/** The node's half of sandboxes: the contract of `client/sandbox-port.ts` over machines, records and files. */
import {
  type CreatedSandbox,
  type CreateSandboxRequest,
  GatewayError,
  type NetworkChoice,
  type SandboxEvent,
  type SandboxId,
  type SandboxInfo,
  type SandboxNetwork,
  type SnapshotInfo,
  type Termination,
} from '../../sdk/index.ts';
import type { SandboxEdge, SandboxFilter, SandboxOrigin, SandboxUse } from '../client/sandbox-port.ts';
import type { Leftover } from '../vmm/port.ts';
import { BaseCollection } from './base-collection.ts';
import type { SandboxContext } from './context.ts';
import { createSandbox } from './creation.ts';
import { keepDeadlines, renewDeadline } from './deadlines.ts';
import { diffSnapshots } from './diff.ts';
import { Entry, ended } from './entry.ts';
import { readEvents } from './event-stream.ts';
import type { Acquire } from './first-machine.ts';
import { fork } from './fork.ts';
import type { LiveMachine } from './live-machine.ts';
import { networkOf, setNetwork } from './network.ts';
import { hostOomKills, NodePressure, type OomKills } from './node-pressure.ts';
import { ProcessRecords } from './process-records.ts';
import type { Past } from './process-watch.ts';
import { type SandboxRecord, toSandboxInfo, toSnapshotInfo } from './record.ts';
import { type RecoveryDeps, recover } from './recovery.ts';
import { dropSnapshot } from './retention.ts';
import { createSecretBox, type SecretBox } from './sealed-secrets.ts';
import { findSnapshot, listSnapshots, rewind, takeSnapshot } from './snapshots.ts';
import { pause, resume } from './suspension.ts';
import { createTokens, type Tokens } from './token.ts';
import { enter } from './use.ts';
import { killedVerdict, machineVerdict } from './verdict.ts';

export interface SandboxesDeps {
  /** Everything but what this class provides itself. */
  readonly context: Omit<SandboxContext, 'adopt' | 'watch' | 'collect' | 'rebase'>;
  readonly acquire: Acquire;
  readonly recovery: Omit<RecoveryDeps, 'addPaused'>;
  /** Tokens of sandboxes and the key of their secrets are derived from it; 32 bytes, the same over restarts. */
  readonly secret: Uint8Array;
  /** Default: this host's. */
  readonly oomKills?: OomKills | undefined;
}

type Signalled = { readonly signal: AbortSignal };

export class Sandboxes implements SandboxEdge {
  readonly #deps: SandboxesDeps;
  readonly #context: SandboxContext;
  readonly #entries = new Map<string, Entry>();
  readonly #processes: ProcessRecords;
  readonly #bases: BaseCollection;
  readonly #tokens: Tokens;
  readonly #secrets: SecretBox;
  readonly #pressure: NodePressure;
  #cancelSweep: () => void = () => {};
  #isClosed = false;

  constructor(deps: SandboxesDeps) {
    this.#deps = deps;
    this.#context = {
      ...deps.context,
      adopt: (record, live, past) => this.#adopt(record, live, past),
      watch: (entry, live, past) => this.#watch(entry, live, past),
      collect: () => this.#bases.collect(),
      rebase: (id, from, to) => this.#rebase(id, from, to),
    };
    this.#processes = new ProcessRecords(deps.context);
    this.#bases = new BaseCollection(deps.context);
    this.#tokens = createTokens(deps.secret);
    this.#secrets = createSecretBox(deps.secret);
    this.#pressure = new NodePressure(deps.oomKills ?? hostOomKills);
  }

  /** Takes over what an earlier edge left, then begins to watch deadlines. To be called once, before anything else. */
  async start(leftovers: readonly Leftover[]): Promise<void> {
    const addPaused = (record: SandboxRecord) => void this.#add(record);
    await recover(this.#context, { ...this.#deps.recovery, addPaused }, leftovers);
    await this.#context.networks.settled();
    this.#scheduleSweep();
  }

  /** Lets go of all machines, which run on; a later edge takes them over. What is being changed is waited for. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelSweep();
    for (const entry of this.#entries.values()) {
      entry.gate.end(new GatewayError('draining', 'the node is stopping', { component: 'edge' }));
      await entry.settled();
      entry.processes?.[Symbol.dispose]();
      await entry.live?.detach();
    }
    this.#entries.clear();
    this.#processes[Symbol.dispose]();
  }

  async create(
    origin: SandboxOrigin,
    request: CreateSandboxRequest,
    { signal, network }: Signalled & { readonly network?: NetworkChoice },
  ): Promise<CreatedSandbox> {
    this.#requireOpen();
    const rules = request.network;
    const own = network ?? (rules === undefined ? null : { kind: 'native' as const, rules });
    const deps = { context: this.#context, acquire: this.#deps.acquire, secrets: this.#secrets };
    const { record } = await this.#bases.make(() =>
      createSandbox(deps, origin, request, { signal, network: own }),
    );
    return this.#created(record);
  }

  async get(id: SandboxId): Promise<SandboxInfo> {
    const record = this.#entries.get(id)?.record ?? this.#context.store.sandbox(id);
    if (record === undefined) throw unknown(id);
    return this.#info(record);
  }

  async list({ states, template, metadata = {} }: SandboxFilter): Promise<SandboxInfo[]> {
    return this.#context.store
      .sandboxes()
      .filter(
        (record) =>
          (states === undefined ? record.state !== 'ended' : states.includes(record.state)) &&
          (template ?? record.origin.template) === record.origin.template &&
          Object.entries(metadata).every(([key, value]) => record.metadata[key] === value),
      )
      .map((record) => this.#info(record));
  }

  async setDeadline(
    id: SandboxId,
    deadlineMs: number,
    { onlyExtend }: { readonly onlyExtend: boolean },
  ): Promise<SandboxInfo> {
    const entry = this.#require(id);
    renewDeadline(this.#context, entry, deadlineMs, onlyExtend);
    return this.#info(entry.record);
  }

  async kill(id: SandboxId): Promise<SandboxInfo> {
    const entry = this.#entries.get(id);
    if (entry !== undefined) await this.#end(entry, killedVerdict(this.#context.clock.now()));
    return this.get(id);
  }

  async pause(id: SandboxId, { signal }: Signalled): Promise<SandboxInfo> {
    const entry = this.#require(id);
    await pause(this.#context, entry, signal);
    return this.#info(entry.record);
  }

  async resume(
    id: SandboxId,
    options: Signalled & { readonly deadlineMs?: number },
  ): Promise<CreatedSandbox> {
    const entry = this.#require(id);
    // Somebody else, or a request that woke it, is at it already.
    if (entry.state === 'resuming') await entry.settled();
    const isAwake = entry.state === 'running';
    await this.#bases.make(() => resume(this.#context, entry, options));
    if (isAwake && options.deadlineMs !== undefined)
      await this.setDeadline(id, options.deadlineMs, { onlyExtend: false });
    return this.#created(entry.record);
  }

  async fork(id: SandboxId, request: Parameters<SandboxEdge['fork']>[1], { signal }: Signalled) {
    const entry = this.#require(id);
    const show = (record: SandboxRecord) => this.#created(record);
    return this.#bases.make(() => fork(this.#context, entry, request, { signal, show }));
  }

  async snapshot(
    id: SandboxId,
    request: Parameters<SandboxEdge['snapshot']>[1],
    { signal }: Signalled,
  ): Promise<SnapshotInfo> {
    return takeSnapshot(this.#context, this.#require(id), request, signal);
  }

  async rewind(id: SandboxId, snapshot: string, { signal }: Signalled): Promise<SandboxInfo> {
    const entry = this.#require(id);
    await this.#bases.make(() => rewind(this.#context, entry, snapshot, signal));
    return this.#info(entry.record);
  }

  async snapshots(filter: { readonly sandbox?: SandboxId }): Promise<SnapshotInfo[]> {
    return listSnapshots(this.#context, filter);
  }

  async removeSnapshot(snapshot: string): Promise<void> {
    await dropSnapshot(this.#context, findSnapshot(this.#context, snapshot));
  }

  async pinSnapshot(snapshot: string, isPinned: boolean): Promise<SnapshotInfo> {
    const record = { ...findSnapshot(this.#context, snapshot), isPinned };
    this.#context.store.apply({ snapshots: [record] });
    return toSnapshotInfo(record);
  }

  async diff(from: string, to: string, { signal }: Signalled) {
    return this.#bases.make(() => diffSnapshots(this.#context, from, to, signal));
  }

  events(options: Parameters<SandboxEdge['events']>[0]): AsyncIterable<SandboxEvent> {
    return readEvents(this.#context.store, options);
  }

  async use(id: SandboxId, { signal }: Signalled): Promise<SandboxUse> {
    const deps = {
      info: (entry: Entry) => this.#info(entry.record),
      resume: (entry: Entry, options: Signalled) =>
        this.#bases.make(() => resume(this.#context, entry, options)),
    };
    return enter(deps, this.#require(id), signal);
  }

  async network(id: SandboxId): Promise<SandboxNetwork> {
    const record = this.#entries.get(id)?.record ?? this.#context.store.sandbox(id);
    if (record === undefined) throw unknown(id);
    return networkOf(this.#context, record);
  }

  async setNetwork(id: SandboxId, choice: NetworkChoice | null): Promise<SandboxInfo> {
    const entry = this.#require(id);
    await setNetwork(this.#context, entry, choice);
    return this.#info(entry.record);
  }

  async isToken(id: SandboxId, token: string): Promise<boolean> {
    return this.#tokens.isOf(id, token) && this.#entries.has(id);
  }

  #info(record: SandboxRecord): SandboxInfo {
    return toSandboxInfo(record, this.#context.node);
  }

  #created(record: SandboxRecord): CreatedSandbox {
    return { ...this.#info(record), token: this.#tokens.of(record.id) };
  }

  #requireOpen(): void {
    if (this.#isClosed) throw new GatewayError('draining', 'the node is stopping', { component: 'edge' });
  }

  #require(id: SandboxId): Entry {
    this.#requireOpen();
    const entry = this.#entries.get(id);
    if (entry === undefined) {
      const record = this.#context.store.sandbox(id);
      throw record === undefined ? unknown(id) : ended(id, record.termination);
    }
    entry.requireAlive();
    return entry;
  }

  #add(record: SandboxRecord): Entry {
    const entry = new Entry(this.#context, record, this.#context.options);
    this.#entries.set(record.id, entry);
    if (record.sealedSecrets !== null) this.#openSecrets(entry, record.sealedSecrets);
    return entry;
  }

  #openSecrets(entry: Entry, sealed: string): void {
    const secrets = this.#secrets.open(entry.record.id, sealed);
    if (secrets !== null) entry.secrets = secrets;
    else
      entry.update(
        { sealedSecrets: null },
        { type: 'secrets_lost', data: { names: entry.record.secretNames } },
      );
  }

  #adopt(record: SandboxRecord, live: LiveMachine, past: Past['kind']): Entry {
    const entry = this.#add(record);
    entry.live = live;
    this.#watch(entry, live, past);
    return entry;
  }

  #watch(entry: Entry, live: LiveMachine, past: Past['kind']): void {
    this.#context.onServing(live.id);
    this.#processes.watch(entry, live, past);
    void live.gone.then(async ({ exit }) => {
      // Whatever is being done notices by itself, and undoes or completes it.
      await entry.settled();
      if (entry.live !== live || this.#isClosed) return;
      const isPressed = await this.#pressure.hasKilled();
      await this.#end(entry, machineVerdict(exit, this.#context.clock.now(), isPressed));
    });
  }

  /** The record first: what is left of the machine after a crash belongs to nobody then, and the next edge removes it. */
  async #end(entry: Entry, termination: Termination): Promise<void> {
    entry.ending.abort(ended(entry.record.id, termination));
    await entry.settled();
    if (entry.state === 'ended') return;
    const { pausedAs } = entry.record;
    this.#processes.end(entry, termination);
    entry.update(
      { state: 'ended', termination, machine: null, pausedAs: null, sealedSecrets: null },
      { type: 'ended', data: { termination } },
      { removedSnapshots: pausedAs === null ? [] : [pausedAs] },
    );
    entry.gate.end(ended(entry.record.id, termination));
    const { live } = entry;
    entry.live = null;
    this.#entries.delete(entry.record.id);
    try {
      await live?.end(termination.reason);
      if (pausedAs !== null) await this.#context.files.remove(pausedAs);
    } catch (err) {
      this.#context.log.error({ err, 'sandbox.id': entry.record.id }, 'left behind by a sandbox');
    }
    await this.#bases.collect();
  }

  #rebase(id: string, from: string, to: string | null): void {
    const entry = this.#entries.get(id);
    if (entry !== undefined) return void (entry.record.basis === from && entry.update({ basis: to }));
    const record = this.#context.store.sandbox(id);
    if (record !== undefined) this.#context.store.apply({ sandboxes: [{ ...record, basis: to }] });
  }

  #scheduleSweep(): void {
    const { clock, options } = this.#context;
    this.#cancelSweep = clock.schedule(options.sweepMs, () => {
      void this.#sweep().finally(() => {
        if (!this.#isClosed) this.#scheduleSweep();
      });
    });
  }

  async #sweep(): Promise<void> {
    const { clock, options, store } = this.#context;
    store.forget(clock.now() - options.keepEndedMs);
    await this.#pressure.sample();
    await keepDeadlines(this.#context, this.#entries.values(), (entry, termination) =>
      this.#end(entry, termination),
    );
  }
}

const unknown = (id: string) =>
  new GatewayError('sandbox_not_found', `there is no sandbox ${id}`, { component: 'edge' });
