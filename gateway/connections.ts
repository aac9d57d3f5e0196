import type { Socket } from 'node:net';

/**
 * Tells when a client's connection is gone. A response which waits behind a pipelined one has no socket yet and never hears
 * of it, so this listens to the socket itself: once per socket, however many requests are on it.
 */
export class ConnectionWatch {
  readonly #callbacks = new WeakMap<Socket, Set<() => void>>();

  /** Calls back once when `socket` closes (at once, asynchronously, when it has). The answer stops that; idempotent. */
  onClose(socket: Socket, callback: () => void): () => void {
    if (socket.destroyed) {
      let isStopped = false;
      queueMicrotask(() => isStopped || callback());
      return () => {
        isStopped = true;
      };
    }
    const callbacks = this.#callbacks.get(socket) ?? this.#watch(socket);
    callbacks.add(callback);
    return () => void callbacks.delete(callback);
  }

  #watch(socket: Socket): Set<() => void> {
    const callbacks = new Set<() => void>();
    this.#callbacks.set(socket, callbacks);
    socket.once('close', () => {
      this.#callbacks.delete(socket);
      for (const callback of callbacks) callback();
      callbacks.clear();
    });
    return callbacks;
  }
}
