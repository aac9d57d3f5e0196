/**
 * Sandboxes without machines, for tests of the gateway, the SDK and the command line: their lives are kept in memory, and inside
 * each runs the real guest agent as a process of this host. A fork shares nothing but the record.
 */
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SandboxEdge, SandboxOrigin, SandboxUse } from '../../edge/client/index.ts';
import { startTestAgent, type TestAgent } from '../../edge/guest/test-agent.ts';
import {
  type CreatedSandbox,
  type CreateSandboxRequest,
  GatewayError,
  type MachineId,
  randomName,
  type SandboxEvent,
  type SandboxId,
  type SandboxInfo,
  type SnapshotInfo,
} from '../../sdk/index.ts';

interface Kept {
  info: SandboxInfo;
  readonly token: string;
  readonly secrets: Readonly<Record<string, string>>;
  agent?: Promise<TestAgent>;
  channel?: Promise<SandboxUse['channel']>;
  uses: Set<AbortController>;
}

/** Disposing ends the agents, and fails when a use was not let go or an agent complains. */
export interface MemorySandboxes extends SandboxEdge, AsyncDisposable {
  /** Uses nobody has let go. */
  readonly uses: number;
  /** What was asked of it, such as `create`, with repetitions. */
  readonly asked: string[];
  /** A directory which belongs to one sandbox, made with its agent. */
  directoryOf(id: SandboxId): Promise<string>;
  /** Puts out everybody who uses a sandbox, as a pause does that can wait no longer. */
  evict(id: SandboxId): void;
  /** Breaks the channel of a sandbox off, as a short stop of its machine may. */
  cut(id: SandboxId): Promise<void>;
}

const digest = `sha256:${'ab'.repeat(32)}`;
const missing = () =>
  new GatewayError('sandbox_not_found', 'there is no such sandbox', { component: 'edge' });

/** @param options.port of a server on this host which every port of every sandbox leads to; default: each port to itself */
export function createMemorySandboxes(options: { readonly port?: number } = {}): MemorySandboxes {
  const kept = new Map<SandboxId, Kept>();
  const snapshots = new Map<string, SnapshotInfo>();
  const events: SandboxEvent[] = [];
  const asked: string[] = [];
  let news = Promise.withResolvers<void>();

  const tell = (sandbox: SandboxId, type: SandboxEvent['type']) => {
    events.push({ sequence: events.length + 1, at: Date.now(), sandbox, type, data: {} });
    news.resolve();
    news = Promise.withResolvers<void>();
  };
  const find = (id: SandboxId): Kept => {
    const found = kept.get(id);
    if (found === undefined) throw missing();
    return found;
  };
  const change = (id: SandboxId, changes: Partial<SandboxInfo>, event: SandboxEvent['type']): SandboxInfo => {
    const one = find(id);
    if (one.info.state === 'ended') throw missing();
    one.info = { ...one.info, ...changes };
    tell(id, event);
    return one.info;
  };
  const add = (request: CreateSandboxRequest, from: Partial<SandboxInfo>): CreatedSandbox => {
    const now = Date.now();
    const info: SandboxInfo = {
      id: `memo${randomName(16)}`,
      node: 'memo',
      template: 'open',
      version: 'v1',
      digest,
      state: 'running',
      createdAt: now,
      startedAt: now,
      deadlineAt: now + request.deadlineMs,
      generation: 1,
      onTimeout: request.onTimeout,
      autoResume: request.autoResume,
      metadata: request.metadata,
      env: request.env,
      vcpus: 1,
      memoryMiB: 256,
      diskMiB: 1024,
      parent: null,
      basis: null,
      start: 'ready',
      termination: null,
      ...(request.attributes === undefined ? {} : { attributes: request.attributes }),
      ...from,
    };
    const token = `sbx_${randomName(40)}`;
    kept.set(info.id as SandboxId, { info, token, secrets: request.secrets, uses: new Set() });
    return { ...info, token };
  };
  const channelOf = (one: Kept): Promise<SandboxUse['channel']> => {
    one.agent ??= startTestAgent();
    one.channel ??= one.agent.then(async (agent) => asRoot(await agent.connect()));
    return one.channel;
  };
  const hangUp = async (one: Kept) => {
    const channel = await one.channel;
    delete one.channel;
    channel?.close();
    await channel?.closed;
  };
  const snapshotOf = (reference: string): SnapshotInfo => {
    for (const one of snapshots.values()) {
      if (reference === one.id || reference === `snapshot:${one.name}`) return one;
    }
    throw new GatewayError('sandbox_not_found', 'there is no such snapshot', { component: 'edge' });
  };

  return {
    asked,
    get uses() {
      return [...kept.values()].reduce((sum, { uses }) => sum + uses.size, 0);
    },
    async directoryOf(id) {
      const one = find(id);
      await channelOf(one);
      return (await one.agent!).directory;
    },
    evict(id) {
      for (const use of find(id).uses) {
        use.abort(
          new GatewayError('version_unavailable', 'the sandbox is pausing', { retryAfterSeconds: 1 }),
        );
      }
    },
    cut: (id) => hangUp(find(id)),
    async create(origin: SandboxOrigin, request) {
      asked.push('create');
      const from: Partial<SandboxInfo> =
        origin.kind === 'version'
          ? { template: origin.template, version: origin.version, digest: origin.digest }
          : { parent: { kind: 'snapshot', id: snapshotOf(origin.snapshot).id } };
      const created = add(request, from);
      tell(created.id as SandboxId, 'created');
      return created;
    },
    get: async (id) => find(id).info,
    async list({ states, template, metadata }) {
      return [...kept.values()]
        .map(({ info }) => info)
        .filter(
          (info) =>
            (states === undefined ? info.state !== 'ended' : states.includes(info.state)) &&
            (template === undefined || info.template === template) &&
            Object.entries(metadata ?? {}).every(([key, value]) => info.metadata[key] === value),
        );
    },
    async setDeadline(id, deadlineMs, { onlyExtend }) {
      const { deadlineAt, generation } = find(id).info;
      const wanted = Date.now() + deadlineMs;
      const changes = { deadlineAt: onlyExtend ? Math.max(deadlineAt, wanted) : wanted };
      return change(id, { ...changes, generation: generation + 1 }, 'deadline_changed');
    },
    async kill(id) {
      const one = find(id);
      if (one.info.state === 'ended') return one.info;
      const termination = { reason: 'killed', infra: false, evidence: '', at: Date.now() } as const;
      const info = change(id, { state: 'ended', termination }, 'ended');
      for (const use of one.uses) use.abort(missing());
      await hangUp(one);
      return info;
    },
    async pause(id) {
      const info = change(id, { state: 'paused' }, 'paused');
      await hangUp(find(id));
      return info;
    },
    async resume(id) {
      const info = change(id, { state: 'running', start: 'resumed', startedAt: Date.now() }, 'resumed');
      return { ...info, token: find(id).token };
    },
    async fork(id, { count, deadlineMs = 300_000, metadata = {} }) {
      asked.push('fork');
      const { info } = find(id);
      if (info.state === 'ended') throw missing();
      const children = Array.from({ length: count }, () => {
        const { onTimeout, autoResume, env, template, version, attributes } = info;
        const merged = { ...info.metadata, ...metadata };
        const request = { deadlineMs, onTimeout, autoResume, metadata: merged, env, secrets: {}, attributes };
        const sandbox = add(request, { template, version, parent: { kind: 'sandbox', id }, start: 'forked' });
        tell(sandbox.id as SandboxId, 'forked');
        return { sandbox };
      });
      const timing = { stoppedMs: 0, stateMs: 0, pagesMs: 0, diskMs: 0, dirtyBytes: 0 };
      return {
        children,
        notInherited: Object.keys(find(id).secrets).map((name) => `secret ${name}`),
        timing,
      };
    },
    async snapshot(id, { name = null, isPinned }) {
      asked.push('snapshot');
      const { template, version, basis } = find(id).info;
      const snapshot: SnapshotInfo = {
        id: `memo${randomName(16)}`,
        name,
        sandbox: id,
        template,
        version,
        digest,
        parent: basis,
        createdAt: Date.now(),
        isPinned,
        bytes: 0,
      };
      snapshots.set(snapshot.id, snapshot);
      change(id, { basis: snapshot.id }, 'snapshotted');
      return snapshot;
    },
    rewind: async (id, snapshot) => change(id, { basis: snapshotOf(snapshot).id }, 'rewound'),
    snapshots: async ({ sandbox }) =>
      [...snapshots.values()].filter((one) => sandbox === undefined || one.sandbox === sandbox),
    async removeSnapshot(snapshot) {
      snapshots.delete(snapshotOf(snapshot).id);
    },
    async pinSnapshot(snapshot, isPinned) {
      const changed = { ...snapshotOf(snapshot), isPinned };
      snapshots.set(changed.id, changed);
      return changed;
    },
    async diff(from, to) {
      const isSame = snapshotOf(from).id === snapshotOf(to).id;
      return { files: isSame ? [] : [{ path: '/tmp/new', change: 'added' }], processes: [] };
    },
    async *events({ since, follow, sandbox, signal }) {
      for (let next = since; !signal.aborted; ) {
        const more = news.promise;
        const found = events
          .slice(next)
          .filter((event) => sandbox === undefined || event.sandbox === sandbox);
        next = events.length;
        yield* found;
        if (found.length > 0) continue;
        if (!follow) return;
        const aborted = new Promise<void>((resolve) =>
          signal.addEventListener('abort', () => resolve(), { once: true }),
        );
        await Promise.race([more, aborted]);
      }
    },
    async use(id) {
      const one = find(id);
      if (one.info.state === 'ended') throw missing();
      if (one.info.state === 'paused') {
        if (!one.info.autoResume) throw new GatewayError('conflict', 'it is paused', { component: 'edge' });
        change(id, { state: 'running', start: 'resumed' }, 'resumed');
      }
      const channel = await channelOf(one);
      const controller = new AbortController();
      one.uses.add(controller);
      return {
        machine: id as unknown as MachineId,
        sandbox: one.info,
        channel,
        signal: controller.signal,
        env: { ...one.info.env, ...one.secrets },
        tunnel: (port) => dial(options.port ?? port),
        [Symbol.dispose]: () => void one.uses.delete(controller),
      };
    },
    network: async (id) => ({
      hasCard: true,
      own: find(id).info.network ?? null,
      template: {},
      refusals: [],
    }),
    setNetwork: async (id, choice) => change(id, { network: choice ?? undefined }, 'network_changed'),
    isToken: async (id, token) => kept.get(id)?.token === token,
    async [Symbol.asyncDispose]() {
      const left = this.uses;
      for (const one of kept.values()) {
        await hangUp(one);
        await (await one.agent)?.stop();
      }
      if (left > 0) throw new Error(`${left} uses were not let go`);
    },
  };
}

/** This host has no user named `user`. */
function asRoot(channel: SandboxUse['channel']): SandboxUse['channel'] {
  const start = channel.startProcess.bind(channel);
  channel.startProcess = (spec, waiting) => start({ ...spec, user: 'root' }, waiting);
  for (const name of [
    'readFile',
    'statFile',
    'listFiles',
    'makeDirectory',
    'deleteFile',
    'watchFiles',
  ] as const) {
    const call = channel[name].bind(channel) as (path: string, options: object) => never;
    channel[name] = (path: string, options: object) => call(path, { ...options, user: 'root' });
  }
  const write = channel.writeFile.bind(channel);
  channel.writeFile = (path, body, options) => write(path, body, { ...options, user: 'root' });
  const move = channel.moveFile.bind(channel);
  channel.moveFile = (from, to, options) => move(from, to, { ...options, user: 'root' });
  return channel;
}

function dial(port: number): Promise<Duplex> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  return new Promise((resolve, reject) => {
    socket.once('connect', () => resolve(socket));
    socket.once('error', (cause) =>
      reject(
        new GatewayError('function_port_closed', 'nothing listens on this port', {
          component: 'guest',
          cause,
        }),
      ),
    );
  });
}
