/** QEMU's migration as the transport of device state: its end by events, the bytes over unix sockets. */
import { type FileHandle, open, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError } from '../../../sdk/index.ts';
import { type QmpClient, QmpError } from './qmp-client.ts';
import type { MigrationState } from './qmp-message.ts';

/** Device state is 0.3–0.6 MB; a VMM that sends more than this has left the path. */
const maxStateBytes = 64 * 2 ** 20;
const settleLookMs = 2;
const finalStates: readonly MigrationState[] = ['completed', 'failed', 'cancelled'];

/** Turns on events and leaves shared RAM out of the state. To be called once, before any migration. */
export async function prepareMigration(qmp: QmpClient, signal: AbortSignal): Promise<void> {
  const capabilities = ['events', 'x-ignore-shared'].map((capability) => ({ capability, state: true }));
  await qmp.execute('migrate-set-capabilities', { capabilities }, { signal });
}

/** Resolves with the state in which the migration now begun ends. Call before beginning it, and always dispose. */
function watchMigration(qmp: QmpClient): Disposable & { readonly end: Promise<MigrationState> } {
  const { promise, resolve, reject } = Promise.withResolvers<MigrationState>();
  const stop = qmp.on('MIGRATION', ({ status }) => {
    if (finalStates.includes(status)) resolve(status);
  });
  void qmp.closed.then(() => reject(new QmpError('disconnected', 'the VMM ended during a migration')));
  promise.catch(() => {});
  return { end: promise, [Symbol.dispose]: stop };
}

/** Rejects with the signal's reason as soon as it is aborted; settles like `work` otherwise. */
async function orAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  // Whoever gives up on work still has to hear of its failure, or it would end the process.
  work.catch(() => {});
  signal.throwIfAborted();
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Feeds a state file into a VMM that listens on `socketPath`; done when QEMU says that the machine is complete. */
export async function feedState(
  qmp: QmpClient,
  socketPath: string,
  statePath: string,
  signal: AbortSignal,
): Promise<void> {
  const state = await readState(statePath, signal);
  using migration = watchMigration(qmp);
  const socket = connect(socketPath);
  const broken = new Promise<never>((_, reject) => {
    // When QEMU gives up on the state it closes the socket first; its own end says more.
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE' && error.code !== 'ECONNRESET') reject(error);
    });
  });
  try {
    socket.end(state);
    const end = await orAbort(Promise.race([migration.end, broken]), signal);
    if (end !== 'completed') throw new QmpError('refused', `loading the state ended as ${end}`);
  } finally {
    socket.destroy();
  }
}

async function readState(path: string, signal: AbortSignal): Promise<Buffer> {
  await using file = await open(path, 'r');
  const { size } = await file.stat();
  if (size === 0 || size > maxStateBytes)
    throw new GatewayError('snapshot_corrupt', `a state file of ${size} bytes can't be right`, {
      component: 'edge',
    });
  return await file.readFile({ signal });
}

/** A save that failed without harm to the VMM: it is still paused and can go on. */
export class SaveRefused extends Error {
  override readonly name = 'SaveRefused';
}

/** Where the outgoing state goes. */
export interface StateSink {
  /** Socket on which we listen. */
  readonly socketPath: string;
  /** The same socket as the VMM names it. */
  readonly uri: string;
  /** File to create. */
  readonly statePath: string;
}

/**
 * Has QEMU write its device state to a new file. Throws {@link SaveRefused} with the cause when it failed or was aborted
 * but the VMM is well; anything else means that the VMM is lost. Leaves no file behind on failure.
 * @returns bytes written
 */
export async function drainState(qmp: QmpClient, sink: StateSink, signal: AbortSignal): Promise<number> {
  const refuse = (cause: unknown): never => {
    throw new SaveRefused('could not save the state', { cause });
  };
  if (signal.aborted) refuse(signal.reason);
  const { status } = await qmp.execute('query-status', {});
  if (status === 'postmigrate')
    refuse(
      new GatewayError('conflict', 'the machine was saved in this pause already: resume it first', {
        component: 'edge',
      }),
    );
  const file = await open(sink.statePath, 'wx', 0o600).catch(refuse);
  try {
    await using listener = await listenOnce(sink.socketPath);
    using migration = watchMigration(qmp);
    const drained = drain(listener.connection, file);
    drained.catch(() => {});
    // Not aborted half-way: without its answer nobody knows whether a migration is under way.
    await qmp.execute('migrate', { uri: sink.uri }).catch((error: unknown) => {
      if (error instanceof QmpError && error.kind === 'refused') refuse(error);
      throw error;
    });
    try {
      const [end, bytes] = await orAbort(Promise.all([migration.end, drained]), signal);
      if (end !== 'completed') throw new Error(`saving the state ended as ${end}`);
      return bytes;
    } catch (cause) {
      listener.drop();
      await settleMigration(qmp, migration.end);
      return refuse(cause);
    }
  } catch (error) {
    await rm(sink.statePath, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

/** Makes sure that no migration is under way any more; throws when QEMU is dead or does not come to rest. */
async function settleMigration(qmp: QmpClient, end: Promise<MigrationState>): Promise<void> {
  const signal = AbortSignal.timeout(5000);
  await qmp.execute('migrate_cancel', {}, { signal });
  await orAbort(end, signal);
  // The event comes a moment before QEMU is out of its last phase, in which it refuses to go on.
  while ((await qmp.execute('query-status', {}, { signal })).status === 'finish-migrate')
    await sleep(settleLookMs, undefined, { signal });
}

async function drain(connection: Promise<Socket>, file: FileHandle): Promise<number> {
  let bytes = 0;
  for await (const chunk of await connection) {
    bytes += (chunk as Buffer).length;
    if (bytes > maxStateBytes) throw new RangeError(`more than ${maxStateBytes} bytes of device state`);
    await file.appendFile(chunk as Buffer);
  }
  return bytes;
}

/** Listens for exactly one connection; disposing ends listener and connection and removes the socket. */
async function listenOnce(path: string) {
  await rm(path, { force: true });
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  promise.catch(() => {});
  let isDropped = false;
  const server = createServer((socket) => {
    socket.on('error', () => {});
    if (isDropped) socket.destroy();
    resolve(socket);
  });
  server.maxConnections = 1;
  await new Promise<void>((done, failed) => {
    server.once('error', failed);
    // Another user's VMM connects; who may is decided by the directory.
    server.listen({ path, writableAll: true }, done);
  });
  const drop = () => {
    isDropped = true;
    reject(new Error('dropped'));
    void promise.then(
      (socket) => socket.destroy(),
      () => {},
    );
  };
  return {
    connection: promise,
    drop,
    async [Symbol.asyncDispose]() {
      drop();
      await new Promise<void>((done) => server.close(() => done()));
    },
  };
}
