/**
 * Reading what nobody wants. A connection closed over unread bytes is reset by the kernel, and the reset throws away the
 * answer that the client had not read yet (honojs/node-server#327); and a client which sends all before it reads would
 * wait for ever. So the rest of a body is read and dropped, within bounds.
 */
import type { IncomingMessage } from 'node:http';
import type { Clock } from '../../sdk/index.ts';

export interface DrainOptions {
  readonly clock: Clock;
  /** Most bytes to throw away. */
  readonly lingerBytes: number;
  /** Counts from {@link Drain.finishWithin}. */
  readonly lingerMs: number;
}

/** A request body being thrown away. */
export interface Drain {
  /** Resolves when the request is complete, its connection is gone, or a bound was hit. Never rejects. */
  readonly done: Promise<void>;
  /** Starts the time bound: the answer is out, so the client has no reason to go on for long. Idempotent. */
  finishWithin(): void;
}

/** Starts to read and drop. */
export function drainRequest(request: IncomingMessage, options: DrainOptions): Drain {
  let cancelTimer: (() => void) | undefined;
  let droppedBytes = 0;
  const { promise: done, resolve } = Promise.withResolvers<void>();
  const finish = () => {
    cancelTimer?.();
    request.off('data', onData).off('end', finish).off('close', finish);
    resolve();
  };
  const onData = (chunk: Buffer) => {
    droppedBytes += chunk.length;
    if (droppedBytes > options.lingerBytes) finish();
  };
  if (request.complete || request.destroyed) resolve();
  else request.on('data', onData).on('end', finish).on('close', finish);
  request.resume();
  return {
    done,
    finishWithin() {
      cancelTimer ??= options.clock.schedule(options.lingerMs, finish);
    },
  };
}
