/**
 * The guest's serial console, as a bounded tail. QEMU listens on a socket in the machine's directory and drops what the
 * guest prints while nobody is connected, so neither memory nor disk can grow, whatever a guest prints and whether or
 * not an edge lives (a file or QEMU's `logfile=` would grow without end; a pipe would end with the edge; QEMU's ring
 * buffer would be lost with the process, when its last lines matter most). Lost: what was printed between the death of
 * an edge and the adoption by the next.
 */
import { connect } from 'node:net';
import { createTextTail } from './text-tail.ts';

/** Bytes of console kept a machine. */
const consoleTailBytes = 8 * 1024;
/** Most bytes taken from one guest's console in a second; beyond that the guest's own serial port stalls. */
const maxBytesPerSecond = 1 << 20;

export interface ConsoleReader {
  text(): string;
  /** Settles when the VMM closed its end and all was read. Never rejects. */
  readonly ended: Promise<void>;
  close(): void;
}

/** Connects to the console's socket. Rejects with the socket's error or the signal's reason. */
export async function connectConsole(path: string, signal: AbortSignal): Promise<ConsoleReader> {
  signal.throwIfAborted();
  const tail = createTextTail(consoleTailBytes);
  const socket = connect(path);
  const connected = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  const onAbort = () => connected.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  let windowBytes = 0;
  let resume: NodeJS.Timeout | undefined;
  socket.once('connect', () => connected.resolve());
  socket.on('error', (error) => connected.reject(error));
  socket.on('close', () => {
    clearTimeout(resume);
    ended.resolve();
  });
  socket.on('data', (chunk: Buffer) => {
    tail.append(chunk);
    windowBytes += chunk.length;
    if (windowBytes < maxBytesPerSecond) return;
    windowBytes = 0;
    socket.pause();
    resume = setTimeout(() => socket.resume(), 1000);
  });
  try {
    await connected.promise;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
  return { text: tail.text, ended: ended.promise, close: () => void socket.destroy() };
}
