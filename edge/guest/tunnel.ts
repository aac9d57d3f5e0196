import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2';
import { Duplex } from 'node:stream';
import { GatewayError } from '../../sdk/index.ts';
import { unreachable } from './errors.ts';
import { begin, cancel, refuse } from './exchange.ts';
import { feed } from './inbound.ts';

/** Node's `http` client and undici treat their connection as a socket: these calls mean nothing to a tunnel. */
interface SocketManners {
  setNoDelay(): this;
  setKeepAlive(): this;
  setTimeout(): this;
  ref(): this;
  unref(): this;
}

/** How undici says that it no longer needs a connection, idle too long or at its own end: the guest sees a close then, not a reset. */
const notNeeded: ReadonlySet<unknown> = new Set(['UND_ERR_INFO', 'UND_ERR_DESTROYED']);

/**
 * One CONNECT stream as a byte stream that behaves like a socket: `end` half-closes, `destroy` closes the guest's
 * socket as a vanished client would, `destroy(error)` resets it. The other side's reset is an error here.
 */
class Tunnel extends Duplex implements SocketManners {
  readonly #stream: ClientHttp2Stream;
  readonly #more: () => void;

  constructor(stream: ClientHttp2Stream) {
    super({ allowHalfOpen: true, readableHighWaterMark: 64 * 1024, writableHighWaterMark: 64 * 1024 });
    this.#stream = stream;
    this.#more = feed(stream, this);
  }

  override _read(): void {
    this.#more();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    if (this.#stream.closed || this.#stream.destroyed)
      done(unreachable('the tunnel into the guest is closed'));
    else this.#stream.write(chunk, done);
  }

  override _writev(
    chunks: { chunk: Buffer; encoding: BufferEncoding }[],
    done: (error?: Error | null) => void,
  ): void {
    this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), 'binary' as BufferEncoding, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.#stream.closed || this.#stream.destroyed) done();
    else this.#stream.end(() => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    // Both halves have ended: the stream closes by itself, once our END_STREAM is on its way.
    if (error === null && this.readableEnded && this.writableFinished) {
      done();
      return;
    }
    cancel(this.#stream, error === null || notNeeded.has((error as { code?: unknown }).code));
    done(error);
  }

  setNoDelay(): this {
    return this;
  }
  setKeepAlive(): this {
    return this;
  }
  setTimeout(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
}

/**
 * Opens a tunnel to a TCP port of the guest's loopback. The caller owns the stream.
 * @throws GatewayError `function_port_closed`, `guest_unreachable`, `cancelled`
 */
export async function openTunnel(
  session: ClientHttp2Session,
  port: number,
  signal: AbortSignal,
): Promise<Duplex> {
  if (!Number.isInteger(port) || port < 1 || port > 65_535)
    throw new GatewayError('invalid_request', 'the port must be 1 to 65535', { field: 'port' });
  const call = { method: 'CONNECT', target: `127.0.0.1:${port}`, subject: 'tunnel', signal } as const;
  const answer = await begin(session, call);
  try {
    await refuse(answer, call);
  } catch (error) {
    cancel(answer.stream);
    throw error;
  }
  return new Tunnel(answer.stream);
}
