import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { FrameReader, frameHeader, jsonFrame } from './http-frames.ts';

/**
 * One end of an upgraded connection between gateway and edge. Its bytes travel in frames, because a plain socket can't tell a
 * peer that has finished sending from one that is gone: both are the same FIN. Here the first says so, and a connection
 * that closes without it is a destroyed one. Owns the socket.
 */
export class TunnelEnd extends Duplex {
  readonly #socket: Socket;
  #isPeerDone = false;

  constructor(socket: Socket) {
    super({ allowHalfOpen: true });
    this.#socket = socket;
    const reader = new FrameReader({
      onJson: (type) => {
        if (type === 'end') {
          this.#isPeerDone = true;
          this.push(null);
        }
        return 'frames';
      },
      onData: (piece) => {
        if (!this.push(piece)) socket.pause();
      },
    });
    socket
      .on('data', (chunk: Buffer) => {
        try {
          reader.push(chunk);
        } catch (error) {
          this.destroy(error as Error);
        }
      })
      .on('error', ignoreError)
      .on('end', this.#onPeerGone)
      .on('close', this.#onPeerGone);
  }

  /** What the peer had said in full may still be waiting for its reader. */
  readonly #onPeerGone = (): void => {
    if (this.#isPeerDone && !this.readableEnded) this.once('end', () => this.destroy());
    else this.destroy();
  };

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#socket.cork();
    this.#socket.write(frameHeader('data', chunk.length));
    this.#socket.write(chunk, callback);
    this.#socket.uncork();
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#socket.write(jsonFrame('end', true), callback);
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    if (this.writableFinished) this.#socket.destroySoon();
    else this.#socket.destroy();
    callback(error);
  }
}

const ignoreError = (): void => {};
