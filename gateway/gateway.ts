/** The gateway: every part of it, put together over the collaborators that a composition root brings. */

import type { Server } from 'node:http';
import type { ServerOptions as TlsOptions, Server as TlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { Logger } from 'pino';
import type { SandboxEdge } from '../edge/client/index.ts';
import type { Clock } from '../sdk/index.ts';
import type { TemplateRegistry } from '../templates/index.ts';
import { createApi } from './api/app.ts';
import { ConnectionWatch } from './connections.ts';
import { e2bDomainOf } from './e2b/address.ts';
import { createE2bDoor } from './e2b/door.ts';
import { alpnFor, type Http2Side, serveHttp2 } from './e2b/tls/http2.ts';
import { createFunctionDoor } from './functions/door.ts';
import { createTrustCheck } from './functions/forwarded.ts';
import type { KeyStore } from './keys/store.ts';
import { closed, type ListenAddress, listening } from './listening.ts';
import { createGatewayMetrics } from './metrics.ts';
import type { GatewayOptions } from './options.ts';
import type { Placement } from './placement.ts';
import type { IdempotencyStore } from './sandboxes/idempotency.ts';
import { createPortDoor } from './sandboxes/port-door.ts';
import { createGatewayServer, createHttp2Handler } from './server.ts';
import { createServing } from './serving.ts';

/** Everything is the caller's: the gateway disposes none of it. */
export interface GatewayDeps {
  readonly placement: Placement;
  readonly registry: TemplateRegistry;
  readonly keys: KeyStore;
  readonly clock: Clock;
  readonly log: Logger;
  /** Absent: the sandbox routes answer `not_supported_yet`. */
  readonly sandboxes?: SandboxEdge | undefined;
  /** Absent: requests with an `Idempotency-Key` are refused. */
  readonly idempotency?: IdempotencyStore | undefined;
  /** Tokens of E2B's clients are derived from it, 32 bytes. Absent: they are not served. */
  readonly e2bSecret?: Uint8Array | undefined;
  /** Files of template builds of E2B's clients. Absent: they are refused. */
  readonly e2bDirectory?: string | undefined;
  /** Uniform in [0, 1). Default `Math.random`: it draws versions and jitter, no secrets. */
  readonly random?: () => number;
}

/** HTTPS where `tls` brings key and certificate. */
export type ListenOptions = ListenAddress & { readonly tls?: TlsOptions };

export interface Gateway extends AsyncDisposable {
  /** Opens one more listener. @returns where it listens */
  listen(options: ListenOptions): Promise<AddressInfo>;
  /** Starts to declare the serving set to the edges; `/readyz` tells when they took it. */
  start(): void;
  /** Whether `/readyz` says so. */
  readonly isReady: boolean;
  /** Lets nobody in any more, waits for what is in flight, then {@link dispose}s. `signal` cuts the waiting short. */
  close(options?: { readonly signal?: AbortSignal }): Promise<void>;
  /** Ends every connection and timer now. Idempotent. */
  dispose(): Promise<void>;
}

/** @param options from `gatewayOptionsSchema`, defaults filled in */
export function createGateway(deps: GatewayDeps, options: GatewayOptions): Gateway {
  const { clock, log, registry, keys, placement, sandboxes, idempotency } = deps;
  const random = deps.random ?? Math.random;
  const { limits, timeouts } = options;
  const metrics = createGatewayMetrics();
  const serving = createServing({ registry, placement, clock, log, random }, { ...limits, ...timeouts });
  const servers = new Set<Server>();
  const sockets = new Set<Socket>();
  let isDraining = false;
  let disposing: Promise<void> | undefined;

  const shared = {
    keys,
    clock,
    log,
    metrics,
    connections: new ConnectionWatch(),
    isDraining: () => isDraining,
    isTrustedPeer: createTrustCheck(options.trustedProxies),
  };
  const bounds = { ...limits, ...timeouts };
  const functions = createFunctionDoor(
    { ...shared, registry, placement, serving, random, idempotency },
    bounds,
  );
  const ports = createPortDoor({ ...shared, sandboxes }, bounds);
  const e2bDomain = e2bDomainOf(options.domain);
  const e2b =
    sandboxes === undefined || deps.e2bSecret === undefined
      ? undefined
      : createE2bDoor(
          {
            ...{ sandboxes, ports, registry, serving, placement, keys, idempotency, clock, log },
            tokenSecret: deps.e2bSecret,
            metrics,
            buildsDirectory: deps.e2bDirectory,
          },
          { domain: e2bDomain, publishes: limits.publishes, retireMs: timeouts.retireMs },
        );
  const http2Sides = new Set<Http2Side>();
  const whenIdle = () => Promise.all([functions.whenIdle(), ports.whenIdle()]);
  const isReady = () => serving.isReconciled && !isDraining;
  const api = createApi(
    { registry, keys, placement, serving, sandboxes, idempotency, clock, log, metrics, isReady },
    options,
  );
  const listener = getRequestListener(api.fetch, { overrideGlobalObjects: false });

  const stopListening = () =>
    Promise.all(Array.from(servers, (server) => closed(server, { clock, idleMs: timeouts.lameDuckMs })));
  const dispose = async (): Promise<void> => {
    isDraining = true;
    const stopped = stopListening();
    for (const side of http2Sides) side.destroy();
    for (const socket of sockets) socket.destroy();
    await Promise.all([stopped, whenIdle()]);
    servers.clear();
    http2Sides.clear();
    await e2b?.[Symbol.asyncDispose]();
    serving[Symbol.dispose]();
  };

  return {
    async listen({ tls, ...address }) {
      const speaksHttp2 = tls !== undefined && e2b !== undefined;
      const server = createGatewayServer(
        { functions, ports, e2b, api: listener, metrics, clock },
        options,
        speaksHttp2 ? { ...tls, ALPNCallback: alpnFor(e2bDomain) } : tls,
      );
      if (speaksHttp2) http2Sides.add(serveHttp2(server as TlsServer, createHttp2Handler(e2b)));
      server.on('connection', (socket) => {
        sockets.add(socket);
        socket.once('close', () => sockets.delete(socket));
      });
      await listening(server, address);
      servers.add(server);
      return server.address() as AddressInfo;
    },
    start() {
      serving.start();
      e2b?.start();
    },
    get isReady() {
      return isReady();
    },
    async close({ signal } = {}) {
      isDraining = true;
      const stopped = stopListening();
      for (const side of http2Sides) side.drain();
      const idle = Promise.all([stopped, whenIdle()]).then(() => {});
      await (signal === undefined ? idle : Promise.race([idle, aborted(signal)]));
      disposing ??= dispose();
      await disposing;
    },
    dispose() {
      disposing ??= dispose();
      return disposing;
    },
    [Symbol.asyncDispose]() {
      disposing ??= dispose();
      return disposing;
    },
  };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
