/** Most fingerprints held: 16 MiB of memory at the most. */
const defaultCapacity = 2 ** 20;

/**
 * A set of 64-bit fingerprints with a fixed ceiling. Two different values collide with a chance of 1 in 2^64 each, some
 * 3 in 10^8 for a full set, so a hit is evidence of a repeat.
 */
export class FingerprintSet {
  private table: BigUint64Array;
  private size = 0;
  private readonly capacity: number;

  constructor(capacity = defaultCapacity) {
    this.capacity = capacity;
    this.table = new BigUint64Array(1024);
  }

  get isFull(): boolean {
    return this.size >= this.capacity;
  }

  /** Adds the first 16 digits of `hex`; false when it was there. A full set still finds, but no longer learns. */
  add(hex: string): boolean {
    // 0 marks a free slot, so that one value is stored as its neighbour.
    const value = BigInt(`0x${hex.slice(0, 16)}`) || 1n;
    let slot = this.slotOf(value);
    if (this.table[slot] === value) return false;
    if (this.isFull) return true;
    if (this.size * 2 >= this.table.length) {
      this.grow();
      slot = this.slotOf(value);
    }
    this.table[slot] = value;
    this.size += 1;
    return true;
  }

  /** Every fingerprint, to compare with those of another generator. */
  values(): BigUint64Array {
    return this.table.filter((value) => value !== 0n);
  }

  /** Values held by two of the sets, counted. */
  static shared(sets: readonly BigUint64Array[]): number {
    const seen = new Set<bigint>();
    let shared = 0;
    for (const values of sets) {
      for (const value of values) {
        if (seen.has(value)) shared += 1;
        else seen.add(value);
      }
    }
    return shared;
  }

  private slotOf(value: bigint): number {
    const mask = this.table.length - 1;
    let slot = Number(value & BigInt(mask));
    while (this.table[slot] !== 0n && this.table[slot] !== value) slot = (slot + 1) & mask;
    return slot;
  }

  private grow(): void {
    const old = this.table;
    this.table = new BigUint64Array(old.length * 2);
    for (const value of old) if (value !== 0n) this.table[this.slotOf(value)] = value;
  }
}
