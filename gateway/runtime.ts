/** What both composition roots of the gateway share: state, keys, server, credentials for the local CLI. */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pino, { type Logger } from 'pino';
import { z } from 'zod';
import type { EdgeClient, SandboxEdge } from '../edge/client/index.ts';
import { GatewayError, systemClock } from '../sdk/index.ts';
import { createTemplateRegistry } from '../templates/index.ts';
import { loadTokenSecret } from './e2b/access/tokens.ts';
import { e2bDomainOf } from './e2b/address.ts';
import { loadOwnCertificate, type ServerCertificate } from './e2b/tls/authority.ts';
import { redactedPaths } from './fields.ts';
import { createGateway, type Gateway } from './gateway.ts';
import { createKeyStore, type KeyStore } from './keys/store.ts';
import { parseListen } from './listening.ts';
import { gatewayOptionsSchema } from './options.ts';
import { singleEdge } from './placement.ts';
import { createIdempotencyStore } from './sandboxes/idempotency.ts';

/** A service that runs until it is closed. */
export interface RunningService {
  readonly url: string;
  /** The key of the local command line; show it to people only when `isNewKey`. */
  readonly apiKey: string;
  readonly isNewKey: boolean;
  /** What clients of E2B are configured with; null where they are not served in TLS. */
  readonly e2b: E2bAccess | null;
  /** Resolves when every version that shall be served has a machine, or can't have one. */
  readonly ready: Promise<void>;
  /** Drains, then stops. Idempotent. */
  close(): Promise<void>;
}

/** Settings of an E2B client. */
export interface E2bAccess {
  /** `E2B_DOMAIN`: with the port, where that is not 443. */
  readonly domain: string;
  /** File with the certificate of the authority that clients must trust; null for a certificate that was brought. */
  readonly caPath: string | null;
}

/** A listener in TLS for `*.{domain}`. */
export interface TlsListenOptions {
  /** `host:port`. Default: beside the plain listener, on port 7443, or any that is free where the plain one's is. */
  readonly listen?: string | undefined;
  /** PEM files of a certificate that was brought, for `*.{domain}`. Default: one of our own. */
  readonly certPath?: string | undefined;
  readonly keyPath?: string | undefined;
}

export interface ServiceOptions {
  /** Absolute. */
  readonly dataDirectory: string;
  /** `host:port`, or `fd:N` for a listening socket that the process was started with. Default `127.0.0.1:7070`. */
  readonly listen?: string;
  /** Names below it lead here. Default `localhost`, or `snapgate.localhost` for clients of E2B. */
  readonly domain?: string | undefined;
  /** Null: no listener in TLS. Default: one with a certificate of our own. */
  readonly tls?: TlsListenOptions | null | undefined;
}

/** Beside the plain listener. */
function besideListen(listen: string = defaultListen): string {
  const address = parseListen(listen);
  if ('fd' in address) return `127.0.0.1:${defaultTlsPort}`;
  const { host, port } = address;
  return `${host.includes(':') ? `[${host}]` : host}:${port === 0 ? 0 : defaultTlsPort}`;
}

/** Where a certificate of our own and its authority are kept. */
export const certificateDirectory = (dataDirectory: string): string => `${dataDirectory}/certificates`;

const defaultListen = '127.0.0.1:7070';
const defaultTlsPort = 7443;
/** How long a stop waits for requests in flight. */
export const drainMs = 10_000;
const readyPollMs = 20;

/** JSON lines on stderr, so that stdout stays free for what a person asked for. */
export const createLog = (level: string): Logger =>
  pino({ level, redact: [...redactedPaths] }, pino.destination(2));

const credentialsSchema = z.strictObject({ url: z.string(), apiKey: z.string() });
type Credentials = z.infer<typeof credentialsSchema>;

async function readCredentials(path: string): Promise<Credentials | null> {
  try {
    return credentialsSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return null; // missing or damaged: a new key takes its place
  }
}

/**
 * Address and key for the command line of this machine. Readable by its owner only and replaced as a whole; a key that was
 * lost or removed is replaced, since whoever can write this file owns the gateway's state anyway.
 */
async function localCredentials(
  path: string,
  url: string,
  keys: KeyStore,
): Promise<{ readonly apiKey: string; readonly isNew: boolean }> {
  const stored = await readCredentials(path);
  const isValid = stored !== null && keys.verify(stored.apiKey) !== null;
  const apiKey = isValid ? stored.apiKey : keys.create('local command line').key;
  if (!isValid || stored.url !== url) {
    await writeFile(`${path}.new`, `${JSON.stringify({ url, apiKey })}\n`, { mode: 0o600 });
    await rename(`${path}.new`, path);
  }
  return { apiKey, isNew: !isValid };
}

/**
 * Opens the gateway's state, listens and begins to declare the serving set.
 * @param paths.state SQLite database @param paths.credentials written when the first key is made
 */
export async function openGateway(
  deps: {
    readonly edge: EdgeClient;
    readonly log: Logger;
    /** Absent where the node keeps no sandboxes. */
    readonly sandboxes?: SandboxEdge | undefined;
  },
  options: {
    readonly listen: string | undefined;
    readonly domain?: string | undefined;
    readonly tls?: TlsListenOptions | null | undefined;
    readonly paths: { readonly state: string; readonly credentials: string; readonly tls: string };
  },
): Promise<RunningService> {
  await using stack = new AsyncDisposableStack();
  const db = stack.adopt(new DatabaseSync(options.paths.state), (database) => database.close());
  const settings = gatewayOptionsSchema.parse(options.domain === undefined ? {} : { domain: options.domain });
  const registry = createTemplateRegistry(db, { clock: systemClock });
  const keys = stack.use(createKeyStore(db, { clock: systemClock }));
  const gateway = stack.use(
    createGateway(
      {
        placement: singleEdge(deps.edge),
        registry,
        keys,
        clock: systemClock,
        log: deps.log,
        sandboxes: deps.sandboxes,
        idempotency: createIdempotencyStore(db, { clock: systemClock }),
        e2bSecret: loadTokenSecret(db),
        e2bDirectory: join(dirname(options.paths.state), 'e2b-builds'),
      },
      settings,
    ),
  );
  const address = await gateway.listen(parseListen(options.listen ?? defaultListen));
  const url = `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
  const e2b =
    options.tls === null
      ? null
      : await listenTls(
          gateway,
          { ...options.tls, listen: options.tls?.listen ?? besideListen(options.listen) },
          options.paths.tls,
          e2bDomainOf(settings.domain),
        );
  const { apiKey, isNew } = await localCredentials(options.paths.credentials, url, keys);
  gateway.start();
  const held = stack.move();
  let closing: Promise<void> | undefined;
  return {
    url,
    apiKey,
    isNewKey: isNew,
    e2b: deps.sandboxes === undefined ? null : e2b,
    ready: whenTrue(() => gateway.isReady),
    close() {
      closing ??= gateway.close({ signal: AbortSignal.timeout(drainMs) }).finally(() => held.disposeAsync());
      return closing;
    },
  };
}

/** @param directory where a certificate of our own is kept */
async function listenTls(
  gateway: Gateway,
  { listen, certPath, keyPath }: TlsListenOptions & { readonly listen: string },
  directory: string,
  domain: string,
): Promise<E2bAccess> {
  if ((certPath === undefined) !== (keyPath === undefined)) {
    throw new GatewayError('invalid_request', 'a certificate comes with its key', { field: 'tls' });
  }
  const certificate: ServerCertificate =
    certPath === undefined || keyPath === undefined
      ? await loadOwnCertificate(directory, domain, { clock: systemClock })
      : { cert: await readFile(certPath, 'utf8'), key: await readFile(keyPath, 'utf8'), caPath: null };
  const { cert, key, caPath } = certificate;
  const { port } = await gateway.listen({
    ...parseListen(listen),
    tls: { cert, key, minVersion: 'TLSv1.2' },
  });
  return { domain: port === 443 ? domain : `${domain}:${port}`, caPath };
}

function whenTrue(test: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      if (!test()) return;
      clearInterval(timer);
      resolve();
    }, readyPollMs);
    timer.unref();
  });
}
