/** Device state into a VMM: an incoming migration over a unix socket, its end told by events. */
import { open } from 'node:fs/promises';
import { connect } from 'node:net';
import { GatewayError } from '../../../sdk/index.ts';
import { maxStateBytes } from './device-state.ts';
import { vmmFileNames } from './machine-files.ts';
import { type QmpClient, QmpError } from './qmp-client.ts';
import type { MigrationState } from './qmp-message.ts';

const finalStates: readonly MigrationState[] = ['completed', 'failed', 'cancelled'];

/** Makes a VMM wait for state on its socket and tell of its arrival. To be called once. */
export async function expectState(qmp: QmpClient, signal: AbortSignal): Promise<void> {
  const capabilities = [{ capability: 'events', state: true }];
  await qmp.execute('migrate-set-capabilities', { capabilities }, { signal });
  await qmp.execute('migrate-incoming', { uri: `unix:${vmmFileNames.incoming}` }, { signal });
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
