/** The server name of a TLS ClientHello (RFC 8446, RFC 6066), from the first bytes of a connection. */

export type ServerName =
  /** Null: a ClientHello without the extension. */
  | { readonly kind: 'name'; readonly name: string | null }
  | { readonly kind: 'more' }
  | { readonly kind: 'invalid' };

/** Most bytes looked at; a larger ClientHello is refused. */
export const maxHelloBytes = 16_384;

const invalid: ServerName = { kind: 'invalid' };
const handshakeRecord = 22;
const clientHello = 1;
const serverNameExtension = 0;

/** Bounds-checked reading: past the end it throws, which makes the message invalid. */
class Reader {
  #bytes: Buffer;
  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }
  get isEmpty(): boolean {
    return this.#bytes.length === 0;
  }
  take(length: number): Buffer {
    if (length > this.#bytes.length) throw new RangeError('message ends early');
    const taken = this.#bytes.subarray(0, length);
    this.#bytes = this.#bytes.subarray(length);
    return taken;
  }
  number(length: 1 | 2 | 3): number {
    return this.take(length).readUIntBE(0, length);
  }
  /** A vector: its length in so many bytes, then its content. */
  vector(length: 1 | 2 | 3): Reader {
    return new Reader(this.take(this.number(length)));
  }
  bytes(): Buffer {
    return this.take(this.#bytes.length);
  }
}

/** Reads the name from what has arrived; the message may be spread over records. */
export function readServerName(bytes: Buffer): ServerName {
  let message = Buffer.alloc(0);
  for (let at = 0; ; ) {
    if (bytes.length > at && bytes[at] !== handshakeRecord) return invalid;
    if (bytes.length > at + 1 && bytes[at + 1] !== 3) return invalid;
    if (bytes.length < at + 5) return { kind: 'more' };
    const length = bytes.readUInt16BE(at + 3);
    if (length === 0 || at + 5 + length > maxHelloBytes) return invalid;
    if (bytes.length < at + 5 + length) return { kind: 'more' };
    message = Buffer.concat([message, bytes.subarray(at + 5, at + 5 + length)]);
    at += 5 + length;
    if (message.length < 4) continue;
    if (message[0] !== clientHello) return invalid;
    const size = message.readUIntBE(1, 3);
    if (size > maxHelloBytes) return invalid;
    if (message.length < size + 4) continue;
    try {
      return { kind: 'name', name: nameIn(new Reader(message.subarray(4, size + 4))) };
    } catch {
      return invalid;
    }
  }
}

function nameIn(hello: Reader): string | null {
  hello.take(2 + 32);
  hello.vector(1);
  hello.vector(2);
  hello.vector(1);
  if (hello.isEmpty) return null;
  const extensions = hello.vector(2);
  let name: string | null = null;
  while (!extensions.isEmpty) {
    const type = extensions.number(2);
    const content = extensions.vector(2);
    if (type !== serverNameExtension) continue;
    const list = content.vector(2);
    // One name of type host_name; two could be read differently by the server.
    if (name !== null || list.number(1) !== 0) throw new RangeError('more than one name');
    name = list.vector(2).bytes().toString('latin1');
    if (!list.isEmpty || name === '') throw new RangeError('more than one name');
  }
  return name;
}
