/**
 * An edge without machines: its "function" is whatever answers `invoke`. It keeps the contract of `EdgeClient` where a gateway
 * can tell, and records what it was asked. For tests, and for benchmarks of the gateway alone.
 */
import { Agent } from 'node:http';
import { Readable } from 'node:stream';
import type {
  BuildEvent,
  EdgeClient,
  InvokeMeta,
  InvokeRequest,
  InvokeResponse,
  ServedVersion,
  UpgradeResponse,
} from '../../edge/client/index.ts';
import {
  GatewayError,
  type LogLine,
  type MachineId,
  type MachineInfo,
  type NodeInfo,
  type PoolInfo,
  type VersionDigest,
} from '../../sdk/index.ts';
import { forward, forwardUpgrade } from './forwarding.ts';

/** How a stub behaves; every part can be replaced while it runs. */
export interface StubBehaviour {
  invoke: (request: InvokeRequest) => Promise<InvokeResponse>;
  upgrade: (request: InvokeRequest) => Promise<UpgradeResponse>;
  build: (archive: Readable, options: { readonly signal: AbortSignal }) => AsyncIterable<BuildEvent>;
  /** Errors by digest; null: ready. */
  ready: (version: ServedVersion) => Promise<string | null>;
  node: () => Promise<NodeInfo>;
  logs: EdgeClient['logs'];
  metrics: () => Promise<string>;
}

export interface StubEdge extends EdgeClient, Disposable {
  readonly behaviour: StubBehaviour;
  /** Each declared serving set, oldest first. */
  readonly declared: (readonly ServedVersion[])[];
  readonly removed: VersionDigest[];
  /** Requests as they arrived. */
  readonly invocations: InvokeRequest[];
  machineList: MachineInfo[];
  poolList: PoolInfo[];
}

export const stubMachine = 'stub0000000000000000' as MachineId;

/** Meta of an answer that took no time. */
export const stubMeta = (digest: VersionDigest, execMs = 0): InvokeMeta => ({
  machine: stubMachine,
  digest,
  start: 'reused',
  timing: { queueMs: 0, restoreMs: 0, execMs },
});

/** @param options.port of the HTTP server that plays the function; without one every call is refused */
export function createStubEdge(
  options: { readonly port?: number; readonly keepsRequests?: boolean } = {},
): StubEdge {
  const agent = new Agent({ keepAlive: true, maxSockets: 1024 });
  const target = {
    port: options.port ?? 0,
    agent,
    meta: (request: InvokeRequest, ms: number) => stubMeta(request.digest, ms),
  };
  const refuse = async () => {
    throw new GatewayError('function_port_closed', 'this stub has no function', { component: 'edge' });
  };
  const behaviour: StubBehaviour = {
    invoke: options.port === undefined ? refuse : (request) => forward(target, request),
    upgrade: options.port === undefined ? refuse : (request) => forwardUpgrade(target, request),
    build: () => {
      throw new GatewayError('build_failed', 'this stub builds nothing', { component: 'templates' });
    },
    ready: async () => null,
    node: async () => stubNode,
    logs: async function* (): AsyncGenerator<LogLine> {},
    metrics: async () => '',
  };
  const note = (request: InvokeRequest): InvokeRequest => {
    if (options.keepsRequests !== false) edge.invocations.push(request);
    return request;
  };
  const edge: StubEdge = {
    behaviour,
    declared: [],
    removed: [],
    invocations: [],
    machineList: [],
    poolList: [],
    node: () => behaviour.node(),
    invoke: (request) => behaviour.invoke(note(request)),
    upgrade: (request) => behaviour.upgrade(note(request)),
    build: (archive, buildOptions) => behaviour.build(archive, buildOptions),
    async setServing(versions) {
      edge.declared.push(versions);
      return Promise.all(
        versions.map(async (version) => ({ digest: version.digest, error: await behaviour.ready(version) })),
      );
    },
    async removeVersion(digest) {
      if (edge.declared.at(-1)?.some((version) => version.digest === digest)) {
        throw new GatewayError('conflict', 'this version serves', { component: 'edge' });
      }
      edge.removed.push(digest);
    },
    machines: async () => edge.machineList,
    pools: async () => edge.poolList,
    logs: (request) => behaviour.logs(request),
    metrics: () => behaviour.metrics(),
    [Symbol.dispose]: () => agent.destroy(),
  };
  return edge;
}

/** An answer made in the process, without any network. */
export const fixedAnswer = (request: InvokeRequest, body: Buffer): InvokeResponse => ({
  status: 200,
  rawHeaders: ['content-type', 'text/plain', 'content-length', String(body.length)],
  body: Readable.from([body], { objectMode: false }),
  trailers: () => [],
  meta: stubMeta(request.digest),
});

const stubNode: NodeInfo = {
  id: 'stub',
  isReady: true,
  isDraining: false,
  accelerator: 'tcg',
  acceleratorReason: 'a stub has no machines',
  isTenantBoundary: false,
  machines: 0,
  maxMachines: 0,
  versions: 0,
  startedAt: 0,
};
