// Randomness that differs between machines made from one memory.
//
// Snapgate reseeds the kernel's generator at every restore and in every fork. Generators that live in the process are memory like
// all else and go on from where they were found, the same in every machine:
// - `Math.random`: V8 offers no way to reseed it from JavaScript.
// - all of `node:crypto`: OpenSSL asks the kernel for a new seed once an hour, or when its process forks. A template's first restore
//   counts as an hour (its clock was set back while it was built); a fork of a machine that has drawn since does not.
// So this puts the kernel's own bytes behind the functions that programs draw from, once, before anything is drawn. What OpenSSL
// draws by itself (keys of TLS sessions, generated key pairs) is not covered: make such things in a process started after the fork.
import crypto from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const source = openSync('/dev/urandom', 'r');

/** Fills a typed array or buffer with bytes from the kernel, which never gives two machines the same. */
function fill(target, offset = 0, size = target.byteLength - offset) {
  const bytes = new Uint8Array(target.buffer ?? target, (target.byteOffset ?? 0) + offset, size);
  for (let filled = 0; filled < size; ) filled += readSync(source, bytes, filled, size - filled, null);
  return target;
}

/** Bytes from the kernel. */
export const kernelBytes = (length) => fill(Buffer.alloc(length));

/** A random UUID (RFC 9562, version 4). */
export function kernelUuid() {
  const bytes = kernelBytes(16);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/** A whole number in [min, max), each as likely as the others. */
function kernelInt(min, max) {
  const range = BigInt(max) - BigInt(min);
  if (range <= 0n) throw new RangeError('max must be greater than min');
  const limit = (1n << 64n) - ((1n << 64n) % range);
  for (;;) {
    const drawn = kernelBytes(8).readBigUInt64LE();
    if (drawn < limit) return Number(BigInt(min) + (drawn % range));
  }
}

/** Answers like `work`, or to a callback in Node's way. */
function maybeLater(work, callback) {
  if (callback === undefined) return work();
  const value = work();
  process.nextTick(callback, null, value);
  return undefined;
}

/** Puts the kernel behind `node:crypto`, Web Crypto and `Math.random`, however they are imported. */
export function useKernelRandomness() {
  Object.assign(crypto, {
    randomUUID: kernelUuid,
    randomBytes: (size, callback) => maybeLater(() => kernelBytes(size), callback),
    randomFillSync: fill,
    randomFill: (target, ...rest) => maybeLater(() => fill(target, ...rest.slice(0, -1)), rest.at(-1)),
    randomInt(...given) {
      const callback = typeof given.at(-1) === 'function' ? given.pop() : undefined;
      const [min, max] = given.length === 1 ? [0, given[0]] : given;
      return maybeLater(() => kernelInt(min, max), callback);
    },
  });
  const web = Object.getPrototypeOf(crypto.webcrypto);
  for (const [name, value] of Object.entries({ getRandomValues: (target) => fill(target), randomUUID: kernelUuid }))
    Object.defineProperty(web, name, { value, configurable: true, writable: true });
  reseed();
  syncBuiltinESMExports();
}

/** `Math.random` from a fresh seed (xorshift128, not for secrets): to be called in every new machine. */
export function reseed() {
  const seed = kernelBytes(16);
  const state = Uint32Array.from([0, 4, 8, 12], (offset) => seed.readUInt32LE(offset));
  if (state.every((word) => word === 0)) state[0] = 1;
  Math.random = () => {
    const mixed = state[3] ^ (state[3] << 11);
    state.copyWithin(1, 0, 3);
    state[0] = state[0] ^ (state[0] >>> 19) ^ mixed ^ (mixed >>> 8);
    return state[0] / 2 ** 32;
  };
}

process.once('exit', () => closeSync(source));
