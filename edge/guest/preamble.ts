import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { GatewayError } from '../../sdk/index.ts';
import { fromAbort, unreachable } from './errors.ts';
import type { ConnectOptions } from './port.ts';

/** More stale output than this before the echo means that the other side is no agent. */
const staleBytesMax = 16 * 1024 * 1024;
const tokenPattern = /^[0-9a-f]{64}$/;
const clockDigits = 16;
const entropyBytes = 64;
/** What ends the echo: the guest's clock in milliseconds, zero when it could not be stepped or no entropy was added. */
const clockPattern = new RegExp(`^[0-9a-f]{${clockDigits}}\n$`);

type Hello = Pick<ConnectOptions, 'token' | 'signal' | 'wake'>;

function preamble({ token, wake }: Hello, nonce: string): string {
  const clockMs = wake === undefined ? 0 : Date.now() + wake.leadMs;
  const entropy = wake === undefined ? Buffer.alloc(entropyBytes) : randomBytes(entropyBytes);
  const clock = clockMs.toString(16).padStart(clockDigits, '0');
  return `SNAPGATE-HELLO/2 ${token} ${nonce} ${clock} ${entropy.toString('hex')}\n\n\n\n\n\n`;
}

function checkClock(field: string, isWoken: boolean): GatewayError | undefined {
  if (!clockPattern.test(field)) return unreachable('the guest greeted us with a malformed clock');
  if (!isWoken || Number.parseInt(field, 16) > 0) return undefined;
  return new GatewayError('restore_failed', 'the guest could not step its clock or take entropy', {
    component: 'guest',
  });
}

/**
 * Says hello and throws away everything that a former session left in the channel, up to the echo of our nonce
 * (`templates/agent/PROTOCOL.md`). Afterwards the socket is paused and the next byte belongs to the new session.
 * @throws GatewayError `guest_unreachable` when the channel ends or talks nonsense; `restore_failed` when the guest could
 * not be woken; `cancelled` when aborted
 */
export async function greet(socket: Socket, options: Hello): Promise<void> {
  const { token, signal, wake } = options;
  if (!tokenPattern.test(token)) throw new GatewayError('internal', 'the channel token is malformed');
  if (signal.aborted) throw fromAbort(signal);
  const nonce = randomBytes(16).toString('hex');
  const echo = Buffer.from(`SNAPGATE-READY/2 ${nonce} `, 'latin1');
  const echoBytes = echo.length + clockDigits + 1;
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
      if (at >= 0 && seen.length >= at + echoBytes) {
        socket.pause();
        const rest = seen.subarray(at + echoBytes);
        if (rest.length > 0) socket.unshift(rest);
        socket.off('data', onData);
        const clock = seen.toString('latin1', at + echo.length, at + echoBytes);
        const error = checkClock(clock, wake !== undefined);
        if (error !== undefined) return settle(error);
        isEchoed = true;
        if (isWritten) settle();
        return;
      }
      staleBytes += chunk.length;
      tail = at >= 0 ? seen.subarray(at) : seen.subarray(Math.max(0, seen.length - echo.length + 1));
      if (staleBytes > staleBytesMax)
        settle(unreachable(`the guest sent ${staleBytes} bytes without greeting us`));
    };
    const onError = (error: Error) => settle(unreachable('the guest channel failed', error));
    const onClose = () => settle(unreachable('the guest channel ended before the guest greeted us'));
    const onAbort = () => settle(fromAbort(signal));
    socket.on('data', onData).on('error', onError).on('close', onClose);
    signal.addEventListener('abort', onAbort, { once: true });
    socket.write(preamble(options, nonce), 'latin1', () => {
      // Node's HTTP/2 aborts the process when it takes over a socket that has a write of its own under way.
      isWritten = true;
      if (isEchoed) settle();
    });
  });
}
