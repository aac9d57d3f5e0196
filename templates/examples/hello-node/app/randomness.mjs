// Randomness that differs between machines restored from one snapshot.
//
// Snapgate reseeds the kernel's generator at every restore. Generators that live in the process are memory like all else
// and go on from where the snapshot found them, the same in every machine:
// - `Math.random`: V8 offers no way to reseed it from JavaScript.
// - all of `node:crypto`: OpenSSL asks the kernel for a new seed at most once an hour, so `randomBytes`,
//   `getRandomValues` and `randomUUID` (also with `{ disableEntropyCache: true }`) give the same bytes in two machines.
// So this reads from the kernel directly where it matters, and seeds a generator of its own where speed matters more.
import { closeSync, openSync, readSync } from 'node:fs';

/** Bytes from the kernel, which never gives two machines the same. */
export function kernelBytes(length) {
  const bytes = Buffer.alloc(length);
  const source = openSync('/dev/urandom', 'r');
  try {
    for (let filled = 0; filled < length; ) filled += readSync(source, bytes, filled, length - filled, null);
  } finally {
    closeSync(source);
  }
  return bytes;
}

/** A random UUID (RFC 9562, version 4). */
export function kernelUuid() {
  const bytes = kernelBytes(16);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/** Numbers in [0, 1) from a fresh seed (xorshift128, not for secrets): make a new one after every restore. */
export function createGenerator() {
  const seed = kernelBytes(16);
  const state = Uint32Array.from([0, 4, 8, 12], (offset) => seed.readUInt32LE(offset));
  if (state.every((word) => word === 0)) state[0] = 1;
  return () => {
    const mixed = state[3] ^ (state[3] << 11);
    state.copyWithin(1, 0, 3);
    state[0] = state[0] ^ (state[0] >>> 19) ^ mixed ^ (mixed >>> 8);
    return state[0] / 2 ** 32;
  };
}
