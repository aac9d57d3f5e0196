import { once } from 'node:events';
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { Channel } from './channel.ts';
import { fromAbort, unreachable } from './errors.ts';
import type { ConnectOptions, SandboxChannel } from './port.ts';
import { greet } from './preamble.ts';

/** What one stream may have in flight towards us: a tunnel at full speed over a slow emulated port. */
const streamWindowBytes = 1024 * 1024;
/** The same for all streams together, so that one slow reader does not stop the others. */
const sessionWindowBytes = 64 * 1024 * 1024;
/** Node counts buffered bytes of a session against this (in MB) and refuses streams above it. */
const sessionMemoryMb = 256;

async function openSocket(path: string, signal: AbortSignal): Promise<Socket> {
  if (signal.aborted) throw fromAbort(signal);
  const socket = connectSocket({ path });
  // Whoever waits hears of errors by their own listener; this one only keeps a late one from ending the process.
  socket.on('error', () => {});
  try {
    await once(socket, 'connect', { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    throw signal.aborted ? fromAbort(signal) : unreachable('the guest channel does not exist', error);
  }
}

function openSession(socket: Socket): Promise<ClientHttp2Session> {
  const session = connectHttp2('http://guest', {
    createConnection: () => socket,
    maxSessionMemory: sessionMemoryMb,
    settings: { enablePush: false, initialWindowSize: streamWindowBytes },
  });
  return new Promise((resolve, reject) => {
    session.on('error', (error) => reject(unreachable('the guest channel failed', error)));
    session.once('close', () => reject(unreachable('the guest channel ended')));
    session.once('connect', () => {
      session.setLocalWindowSize(sessionWindowBytes);
      resolve(session);
    });
  });
}

/**
 * Opens a session with the agent behind a VMM's socket. Whatever session there was before is replaced; processes stay.
 * The caller owns the channel and closes it. The signal covers the connection attempt only.
 * @throws GatewayError `guest_unreachable`, `cancelled`; `restore_failed` when the guest could not be woken as asked
 */
export async function connectGuest(options: ConnectOptions): Promise<SandboxChannel> {
  const socket = await openSocket(options.socketPath, options.signal);
  try {
    await greet(socket, options);
    return new Channel(await openSession(socket), socket);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
