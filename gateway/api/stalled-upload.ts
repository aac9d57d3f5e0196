import type { IncomingMessage } from 'node:http';
import type { Clock } from '../../sdk/index.ts';

/**
 * Closes the connection of a client that stops in the middle of a body. Handlers of the API read bodies as web streams, which
 * know no idle time; this looks at the socket's counter instead, and leaves a client alone that waits for us.
 */
export function closeStalledUpload(request: IncomingMessage, clock: Clock, idleMs: number): void {
  const { socket } = request;
  let seenBytes = socket.bytesRead;
  const look = () => {
    if (request.complete || socket.destroyed) return;
    const isWaitingForUs = request.readableLength > 0;
    if (!isWaitingForUs && socket.bytesRead === seenBytes) {
      socket.destroy();
      return;
    }
    seenBytes = socket.bytesRead;
    cancel = clock.schedule(idleMs, look);
  };
  let cancel = clock.schedule(idleMs, look);
  request.once('close', () => cancel());
}
