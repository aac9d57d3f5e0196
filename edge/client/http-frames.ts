/**
 * Frames of the edge protocol: what HTTP itself has no place for (a raw head, trailers, an error in mid-body) between bytes
 * that pass untouched. Each is one type byte, four bytes of length (big endian) and the payload.
 */
import { GatewayError } from '../../sdk/index.ts';

/**
 * `enough`: the edge reads no more of the request's body. `trailers` and `error` are the last of an answer, `end` of one
 * direction of a tunnel.
 */
const frameTypes = { head: 1, data: 2, trailers: 3, error: 4, enough: 5, end: 6 } as const;
export type FrameType = keyof typeof frameTypes;

const headerBytes = 5;
/** Heads hold headers, which both ends have bounded already; this only stops nonsense. */
const maxJsonBytes = 4 * 1024 * 1024;
const nameOfType = new Map<number, FrameType>(
  Object.entries(frameTypes).map(([name, code]) => [code, name as FrameType]),
);

/** The five bytes in front of `length` bytes of payload. */
export function frameHeader(type: FrameType, length: number): Buffer {
  const header = Buffer.allocUnsafe(headerBytes);
  header.writeUInt8(frameTypes[type], 0);
  header.writeUInt32BE(length, 1);
  return header;
}

/** A whole frame with a JSON payload. */
export function jsonFrame(type: Exclude<FrameType, 'data'>, value: unknown): Buffer {
  const payload = Buffer.from(JSON.stringify(value));
  return Buffer.concat([frameHeader(type, payload.length), payload]);
}

export interface FrameHandler {
  /** A JSON frame. What it returns decides whether the rest of the bytes are frames or raw. */
  onJson(type: Exclude<FrameType, 'data'>, value: unknown): 'frames' | 'raw';
  /** A piece of a data frame, in order; pieces are not whole frames. */
  onData(piece: Buffer): void;
}

/** Takes bytes in any pieces and calls back for what is complete. Holds at most one JSON frame. */
export class FrameReader {
  readonly #handler: FrameHandler;
  #type: FrameType | null = null;
  #left = 0;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #isRaw = false;

  constructor(handler: FrameHandler) {
    this.#handler = handler;
  }

  /**
   * @returns bytes behind the frame that ended the framing; empty before
   * @throws GatewayError `internal` for what is no frame
   */
  push(bytes: Buffer): Buffer {
    let rest = bytes;
    while (rest.length > 0 && !this.#isRaw) rest = this.#take(rest);
    return rest;
  }

  #take(bytes: Buffer): Buffer {
    if (this.#type === null) {
      const used = this.#hold(bytes, headerBytes);
      if (this.#heldBytes === headerBytes) this.#begin(this.#release());
      return bytes.subarray(used);
    }
    if (this.#type === 'data') {
      const piece = bytes.subarray(0, this.#left);
      this.#left -= piece.length;
      if (this.#left === 0) this.#type = null;
      this.#handler.onData(piece);
      return bytes.subarray(piece.length);
    }
    const used = this.#hold(bytes, this.#left);
    if (this.#heldBytes === this.#left) this.#finish(this.#type);
    return bytes.subarray(used);
  }

  #begin(header: Buffer): void {
    const type = nameOfType.get(header.readUInt8(0));
    this.#left = header.readUInt32BE(1);
    if (type === undefined || (type !== 'data' && (this.#left === 0 || this.#left > maxJsonBytes))) {
      throw new GatewayError('internal', 'the peer does not speak the edge protocol', { component: 'edge' });
    }
    this.#type = type === 'data' && this.#left === 0 ? null : type;
  }

  #finish(type: Exclude<FrameType, 'data'>): void {
    const payload = this.#release();
    this.#type = null;
    let value: unknown;
    try {
      value = JSON.parse(payload.toString('utf8'));
    } catch (cause) {
      throw new GatewayError('internal', 'the peer sent a frame that is not JSON', {
        component: 'edge',
        cause,
      });
    }
    this.#isRaw = this.#handler.onJson(type, value) === 'raw';
  }

  /** Keeps bytes until there are `wanted`. @returns how many of them it took */
  #hold(bytes: Buffer, wanted: number): number {
    const piece = bytes.subarray(0, wanted - this.#heldBytes);
    this.#held.push(piece);
    this.#heldBytes += piece.length;
    return piece.length;
  }

  #release(): Buffer {
    const whole = this.#held.length === 1 ? this.#held[0]! : Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    return whole;
  }
}
