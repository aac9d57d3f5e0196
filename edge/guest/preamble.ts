import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { GatewayError } from '../../sdk/index.ts';
import { fromAbort, unreachable } from './errors.ts';

/** More stale output than this before the echo means that the other side is no agent. */
const staleBytesMax = 16 * 1024 * 1024;
const tokenPattern = /^[0-9a-f]{64}$/;

/**
 * Says hello and throws away everything that a former session left in the channel, up to the echo of our nonce
 * (`templates/agent/PROTOCOL.md`). Afterwards the socket is paused and the next byte belongs to the new session.
 * @throws GatewayError `guest_unreachable` when the channel ends or talks nonsense; `cancelled` when aborted
 */
export async function greet(socket: Socket, token: string, signal: AbortSignal): Promise<void> {
  if (!tokenPattern.test(token)) throw new GatewayError('internal', 'the channel token is malformed');
  if (signal.aborted) throw fromAbort(signal);
  const nonce = randomBytes(16).toString('hex');
  const echo = Buffer.from(`SNAPGATE-READY/1 ${nonce}\n`, 'latin1');
  await new Promise<void>((resolve, reject) => {
    let tail: Buffer = Buffer.alloc(0);
    let staleBytes = 0;
    let isWritten = false;
    let isEchoed = false;
    const settle = (error?: GatewayError) => {
      socket.off('data', onData).off('error', onError).off('close', onClose);
      signal.removeEventListener('abort', onAbort);
      if (error === undefined) resolve();
      else reject(error);
    };
    const onData = (chunk: Buffer) => {
      // The echo may begin in the former chunk, so as much of that as could be its start is kept.
      const seen = tail.length === 0 ? chunk : Buffer.concat([tail, chunk]);
      const at = seen.indexOf(echo);
      if (at >= 0) {
        socket.pause();
        const rest = seen.subarray(at + echo.length);
        if (rest.length > 0) socket.unshift(rest);
        socket.off('data', onData);
        isEchoed = true;
        if (isWritten) settle();
        return;
      }
      staleBytes += chunk.length;
      tail = seen.subarray(Math.max(0, seen.length - echo.length + 1));
      if (staleBytes > staleBytesMax)
        settle(unreachable(`the guest sent ${staleBytes} bytes without greeting us`));
    };
    const onError = (error: Error) => settle(unreachable('the guest channel failed', error));
    const onClose = () => settle(unreachable('the guest channel ended before the guest greeted us'));
    const onAbort = () => settle(fromAbort(signal));
    socket.on('data', onData).on('error', onError).on('close', onClose);
    signal.addEventListener('abort', onAbort, { once: true });
    socket.write(`SNAPGATE-HELLO/1 ${token} ${nonce}\n\n\n\n\n\n`, 'latin1', () => {
      // Node's HTTP/2 aborts the process when it takes over a socket that has a write of its own under way.
      isWritten = true;
      if (isEchoed) settle();
    });
  });
}
