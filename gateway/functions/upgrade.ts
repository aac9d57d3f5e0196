/** Requests with `Upgrade`: a raw socket from the parser's hands into a tunnel to the function. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { UpgradeResponse } from '../../edge/client/index.ts';
import type { Clock } from '../../sdk/index.ts';
import { formatHead } from '../problem.ts';
import type { Exchange, Incoming } from './exchange.ts';
import { clientHeaders } from './response-headers.ts';
import type { FunctionRoute } from './route.ts';

/** An upgrade request as `node:http` hands it out. */
export interface UpgradeIncoming {
  readonly request: IncomingMessage;
  readonly socket: Socket;
  /** First bytes behind the request's head. */
  readonly head: Buffer;
  readonly route: FunctionRoute;
}

/** The client's socket while the function is being asked. */
export interface HeldSocket {
  readonly incoming: Incoming;
  readonly socket: Socket;
  /** Ends the holding. @returns what the client sent meanwhile, to be delivered first */
  release(): Buffer[];
}

/** What a client may send before it knows that the protocol was switched. */
const earlyBytes = 64 * 1024;
/** Finds peers that vanished; WebSocket pings are the function's affair. */
const tcpProbeMs = 60_000;

/**
 * Gives the socket a `ServerResponse`, for a refusal or an ordinary answer, and keeps reading, because a socket that is
 * not read never tells that its client left.
 */
export function holdSocket(upgrading: UpgradeIncoming, clock: Clock, lingerMs: number): HeldSocket {
  const { request, socket, head, route } = upgrading;
  const early: Buffer[] = head.length > 0 ? [head] : [];
  let heldBytes = head.length;
  const onData = (chunk: Buffer) => {
    early.push(chunk);
    heldBytes += chunk.length;
    if (heldBytes > earlyBytes) socket.pause();
  };
  const onEnd = () => socket.destroy();
  const response = new ServerResponse(request);
  // The parser gave the socket up, and with it the wiring of this event.
  const onDrain = () => response.emit('drain');
  response.assignSocket(socket);
  response.on('finish', () => {
    socket.end();
    const cancel = clock.schedule(lingerMs, () => socket.destroy());
    socket.once('close', cancel);
  });
  socket.on('error', ignoreError).on('data', onData).on('end', onEnd).on('drain', onDrain);
  socket.setTimeout(0);
  return {
    incoming: { request, response, route, expectsContinue: false, mustClose: true },
    socket,
    release() {
      socket.off('data', onData).off('end', onEnd).off('drain', onDrain).pause();
      response.detachSocket(socket);
      return early;
    },
  };
}

/** Says 101 and joins the two sockets. The exchange is over when both are closed. Never throws for what the peers do. */
export function acceptTunnel(
  exchange: Exchange,
  held: HeldSocket,
  answer: Extract<UpgradeResponse, { isUpgraded: true }>,
  version: string,
): void {
  const { socket: client } = held;
  const { socket: guest, meta } = answer;
  guest.on('error', () => client.destroy());
  if (exchange.isOver || exchange.signal.aborted || client.destroyed) {
    guest.destroy();
    return;
  }
  const { rawHeaders } = clientHeaders(
    101,
    answer.rawHeaders,
    { requestId: exchange.record.requestId, version, meta },
    false,
  );
  const protocol =
    headerOf(answer.rawHeaders, 'upgrade') ?? headerOf(exchange.requestHeaders, 'upgrade') ?? '';
  exchange.beginTunnel(meta);
  const early = held.release();
  client.setNoDelay(true);
  client.setKeepAlive(true, tcpProbeMs);
  client.write(formatHead(101, ['connection', 'Upgrade', 'upgrade', protocol, ...rawHeaders]), 'latin1');
  for (const chunk of early) guest.write(chunk);
  joinSockets(client, guest, () => {
    exchange.record.requestBytes = client.bytesRead;
    exchange.record.responseBytes = client.bytesWritten;
    exchange.finish();
  });
}

/** Half-closes cross, and the death of one side is the death of the other. */
function joinSockets(client: Socket, guest: Duplex, onOver: () => void): void {
  let open = 2;
  const onClose = () => {
    open -= 1;
    if (open === 0) onOver();
  };
  client.on('close', () => {
    guest.destroy();
    onClose();
  });
  guest.on('close', () => {
    // What the function said last is still on its way to the client.
    if (guest.readableEnded) client.destroySoon();
    else client.destroy();
    onClose();
  });
  client.pipe(guest);
  guest.pipe(client);
}

function headerOf(rawHeaders: readonly string[], wanted: string): string | undefined {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    if (rawHeaders[at]!.toLowerCase() === wanted) return rawHeaders[at + 1];
  }
  return undefined;
}

const ignoreError = (): void => {};
