/** The one way in for clients of E2B: control API, envd of a sandbox, and its other ports. */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { Logger } from 'pino';
import type { SandboxEdge } from '../../edge/client/index.ts';
import { type Clock, isSandboxId } from '../../sdk/index.ts';
import type { TemplateRegistry } from '../../templates/index.ts';
import type { IncomingFacts } from '../functions/door.ts';
import type { KeyStore } from '../keys/store.ts';
import type { GatewayMetrics } from '../metrics.ts';
import type { Placement } from '../placement.ts';
import { createPublisher, type PublisherOptions } from '../publish.ts';
import type { IdempotencyStore } from '../sandboxes/idempotency.ts';
import type { PortDoor } from '../sandboxes/port-door.ts';
import type { PortRoute } from '../sandboxes/port-route.ts';
import type { Serving } from '../serving.ts';
import { createSandboxTokens } from './access/tokens.ts';
import { createAddressParser, type E2bAddress, envdPort } from './address.ts';
import { createBuilds } from './builds/builds.ts';
import { createControlApi } from './control/app.ts';
import { createMetricsHistory } from './control/metrics-history.ts';
import { createTagger } from './control/templates.ts';
import { createEnvdDoor } from './envd/door.ts';
import { createTrafficPolicy } from './traffic.ts';

/** All of them belong to the gateway. */
export interface E2bDeps {
  readonly sandboxes: SandboxEdge;
  readonly ports: PortDoor;
  readonly registry: TemplateRegistry;
  readonly serving: Serving;
  readonly placement: Placement;
  readonly keys: KeyStore;
  readonly idempotency?: IdempotencyStore | undefined;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: GatewayMetrics;
  /** See `access/tokens.ts`. */
  readonly tokenSecret: Uint8Array;
  /** Absent: template builds are refused. */
  readonly buildsDirectory?: string | undefined;
}

/** A request and where it goes. */
export interface E2bIncoming {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly address: E2bAddress;
  /** Path and query of the request. */
  readonly path: string;
  readonly expectsContinue: boolean;
}

/** Disposing ends builds that run, and waits for them. */
export interface E2bDoor extends AsyncDisposable {
  /** Null for what is no request of a client of E2B. */
  address(request: IncomingMessage, host: string, path: string): E2bAddress | null;
  /** Answers a request. Never throws. */
  handle(incoming: E2bIncoming, facts: IncomingFacts): void;
  /** Whether a request for another protocol can be served at all. */
  takesUpgrade(address: E2bAddress): boolean;
  /** Answers one. Never throws. */
  upgrade(
    upgrading: Pick<E2bIncoming, 'request' | 'address' | 'path'> & {
      readonly socket: Socket;
      readonly head: Buffer;
    },
    facts: IncomingFacts,
  ): void;
  /** Begins to look at what sandboxes use. */
  start(): void;
}

/** What the gateway's own settings say. */
export interface E2bOptions extends PublisherOptions {
  readonly domain: string;
}

type SandboxAddress = Extract<E2bAddress, { kind: 'sandbox' }>;

/** Owns what its parts remember, and a timer once started. @param domain see `e2bDomainOf` */
export function createE2bDoor(deps: E2bDeps, options: E2bOptions): E2bDoor {
  const { sandboxes, ports, clock, log } = deps;
  const tokens = createSandboxTokens(deps.tokenSecret);
  const history = createMetricsHistory({ sandboxes, clock, log });
  const envd = createEnvdDoor({ sandboxes, tokens, clock });
  const policy = createTrafficPolicy({ sandboxes, tokens });
  const builds =
    deps.buildsDirectory === undefined
      ? undefined
      : createBuilds(
          { ...deps, publisher: createPublisher(deps, options), tag: createTagger(deps) },
          deps.buildsDirectory,
        );
  const api: RequestListener = getRequestListener(
    createControlApi({ ...deps, tokens, history, builds }).fetch,
    { overrideGlobalObjects: false },
  );
  const parse = createAddressParser(options.domain);

  const routeOf = ({ sandbox, port }: SandboxAddress, path: string): PortRoute | null =>
    isSandboxId(sandbox)
      ? { sandbox, port, template: sandbox, ref: String(port), target: path, prefix: '' }
      : null;

  return {
    address: ({ headers }, host, path) =>
      parse({
        host,
        path,
        sandboxId: single(headers['e2b-sandbox-id']),
        sandboxPort: single(headers['e2b-sandbox-port']),
      }),
    handle({ request, response, address, path, expectsContinue }, facts) {
      if (address.kind === 'sandbox' && address.port !== envdPort) {
        const route = routeOf(address, path);
        if (route !== null) return ports.handle({ request, response, route, expectsContinue, policy }, facts);
      }
      if (expectsContinue) response.writeContinue();
      request.on('error', ignoreError);
      response.on('error', ignoreError);
      switch (address.kind) {
        case 'invalid':
          return sendText(response, 400, address.text);
        case 'control':
          request.url = path;
          return void api(request, response);
        case 'sandbox':
          return envd.handle(request, response, address.sandbox, path);
      }
    },
    takesUpgrade: (address) =>
      address.kind === 'sandbox' && address.port !== envdPort && isSandboxId(address.sandbox),
    upgrade({ request, socket, head, address, path }, facts) {
      const route = address.kind === 'sandbox' ? routeOf(address, path) : null;
      if (route === null) socket.destroy();
      else ports.upgrade({ request, socket, head, route, policy }, facts);
    },
    start: () => history.start(),
    async [Symbol.asyncDispose]() {
      history[Symbol.dispose]();
      envd[Symbol.dispose]();
      await builds?.close();
    },
  };
}

const single = (value: string | string[] | undefined): string | undefined =>
  Array.isArray(value) ? value[0] : value;

function sendText(response: ServerResponse, status: number, text: string): void {
  const headers = { 'content-type': 'text/plain; charset=utf-8', 'content-length': Buffer.byteLength(text) };
  response.writeHead(status, headers);
  response.end(text);
}

const ignoreError = (): void => {};
