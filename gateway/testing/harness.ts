/** A gateway on a free port over a stub edge, a real registry in memory and a plain HTTP server as the function. For tests. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { type Logger, pino } from 'pino';
import type { EdgeClient, SandboxEdge } from '../../edge/client/index.ts';
import { type AdminClient, createAdminClient, systemClock, type VersionFacts } from '../../sdk/index.ts';
import { createTemplateRegistry, type TemplateRegistry } from '../../templates/index.ts';
import { loadTokenSecret } from '../e2b/access/tokens.ts';
import { createGateway, type Gateway } from '../gateway.ts';
import { createKeyStore, type KeyStore } from '../keys/store.ts';
import { type GatewayOptionsInput, gatewayOptionsSchema } from '../options.ts';
import { type Placement, singleEdge } from '../placement.ts';
import { createIdempotencyStore } from '../sandboxes/idempotency.ts';
import { createStubEdge, type StubEdge } from './stub-edge.ts';

export interface HarnessOptions {
  /** The function. Default: answers 200 `ok`. */
  readonly listener?: RequestListener;
  readonly gateway?: GatewayOptionsInput;
  /** Changes the stub before the gateway first speaks to it. */
  readonly beforeStart?: (edge: StubEdge) => void;
  /** Instead of the one stub edge. */
  readonly placement?: Placement;
  /** Default: a gateway without sandboxes. The caller disposes them. */
  readonly sandboxes?: SandboxEdge;
  /** Puts something between gateway and stub. Default: nothing. */
  readonly reachEdge?: (edge: EdgeClient) => Promise<{ readonly client: EdgeClient } & AsyncDisposable>;
}

/** Everything a test of the gateway may want to touch. Disposing fails when a connection or an invocation is left. */
export interface Harness extends AsyncDisposable {
  readonly gateway: Gateway;
  readonly port: number;
  readonly url: string;
  readonly edge: StubEdge;
  readonly functionServer: Server;
  readonly registry: TemplateRegistry;
  readonly keys: KeyStore;
  readonly key: string;
  /** Parsed log lines. */
  readonly lines: Record<string, unknown>[];
  /** The log line of the only (or last) finished invocation; waits for it. */
  finished(count?: number): Promise<Record<string, unknown>[]>;
}

/** Publishes `open` (public) and `closed` (needs a key), then starts everything. */
export async function startHarness(options: HarnessOptions = {}): Promise<Harness> {
  const functionServer = createServer(options.listener ?? ((_request, response) => void response.end('ok')));
  const functionPort = await listen(functionServer);
  const db = new DatabaseSync(':memory:');
  const registry = createTemplateRegistry(db, { clock: systemClock });
  publish(registry, 'open', { public: true });
  publish(registry, 'closed', {});
  const keys = createKeyStore(db, { clock: systemClock });
  const { key } = keys.create('test');
  const edge = createStubEdge({ port: functionPort });
  const reached = await options.reachEdge?.(edge);
  const { log, lines, waitFor } = memoryLog();
  const gateway = createGateway(
    {
      placement: options.placement ?? singleEdge(reached?.client ?? edge),
      registry,
      keys,
      clock: systemClock,
      log,
      sandboxes: options.sandboxes,
      idempotency: createIdempotencyStore(db, { clock: systemClock }),
      e2bSecret: loadTokenSecret(db),
    },
    gatewayOptionsSchema.parse(options.gateway ?? {}),
  );
  const { port } = await gateway.listen({ host: '127.0.0.1', port: 0 });
  options.beforeStart?.(edge);
  gateway.start();
  return {
    gateway,
    port,
    url: `http://127.0.0.1:${port}`,
    edge,
    functionServer,
    registry,
    keys,
    key,
    lines,
    finished: (count = 1) => waitFor('invocation finished', count),
    async [Symbol.asyncDispose]() {
      await gateway.dispose();
      await reached?.[Symbol.asyncDispose]();
      edge[Symbol.dispose]();
      functionServer.closeAllConnections();
      await new Promise((resolve) => functionServer.close(resolve));
      keys[Symbol.dispose]();
      db.close();
    },
  };
}

let builds = 0;

/** Records a version with these fields in its definition and points `latest` to it. */
export function publish(
  registry: TemplateRegistry,
  name: string,
  definition: Record<string, unknown>,
): string {
  const version = registry.publish(name, { definition: { name, ...definition }, facts: newFacts() });
  return version.version;
}

/** Facts of a version nobody has seen before. */
export function newFacts(): VersionFacts {
  builds += 1;
  return {
    digest: `sha256:${builds.toString(16).padStart(64, '0')}`,
    builtAt: 0,
    buildMs: 1,
    memoryBytes: 1,
    stateBytes: 1,
    diskBytes: 1,
    accelerator: 'tcg',
    verifyRestoreMs: 1,
    verifyFirstResponseMs: null,
  };
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

function memoryLog(): {
  log: Logger;
  lines: Record<string, unknown>[];
  waitFor: (message: string, count: number) => Promise<Record<string, unknown>[]>;
} {
  const lines: Record<string, unknown>[] = [];
  let wake = () => {};
  const log = pino(
    { base: null },
    {
      write(text: string) {
        lines.push(JSON.parse(text));
        wake();
      },
    },
  );
  const waitFor = async (message: string, count: number) => {
    for (;;) {
      const found = lines.filter((line) => line.msg === message);
      if (found.length >= count) return found;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  };
  return { log, lines, waitFor };
}

/** The client of a program that has the harness's key. */
export const clientOf = (harness: Harness): AdminClient =>
  createAdminClient({ url: harness.url, apiKey: harness.key });

/** What the gateway last told the edge to serve: `name@version`. */
export const served = (harness: Harness): string[] | undefined =>
  harness.edge.declared.at(-1)?.map(({ template, version }) => `${template}@${version}`);
