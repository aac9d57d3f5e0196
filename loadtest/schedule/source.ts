import { arrivalsOf } from './arrivals.ts';
import type { Profile } from './profile.ts';
import { createRandom } from './random.ts';
import { createTargeting, type Targeting } from './targets.ts';

/** Arrivals computed ahead in one go. 4,096 of them take 96 KiB and, at 10,000/s, last 0.4 s. */
const blockSize = 4096;

/** Arrivals in order of time, as columns, so that the sending loop reads numbers and allocates nothing. */
export interface ArrivalBlock {
  readonly count: number;
  /** Milliseconds from the start of the schedule. */
  readonly atMs: Float64Array;
  /** Place of the arrival in the whole schedule, from 0; the same in every shard. */
  readonly sequence: Float64Array;
  /** Index of the template. */
  readonly target: Uint32Array;
  /** Milliseconds of work to ask the function for; 0 where the schedule says nothing. */
  readonly workMs: Float32Array;
}

/** One arrival on its way into a block. */
export interface Arrival {
  readonly atMs: number;
  readonly target: number;
  readonly workMs: number;
}

/** A schedule that hands out its arrivals block by block. `null` ends it. Not safe for concurrent callers. */
export interface ArrivalSource {
  next(): Promise<ArrivalBlock | null>;
}

/** A part of a schedule for one of several generators: every `count`-th arrival, starting with the `index`-th. */
export interface Shard {
  readonly index: number;
  readonly count: number;
}

/** The schedule which `seed` and `profile` decide, spread over `targets` templates. */
export function createProfileSource(options: {
  readonly profile: Profile;
  readonly seed: number;
  readonly targeting: Targeting;
  readonly targets: number;
  readonly shard?: Shard;
}): ArrivalSource {
  const instants = arrivalsOf(options.profile, {
    gaps: createRandom(options.seed, 'gaps'),
    dwell: createRandom(options.seed, 'dwell'),
  });
  const pick = createTargeting(options.targeting, options.targets, createRandom(options.seed, 'targets'));
  function* arrivals(): Generator<Arrival> {
    for (const atMs of instants) yield { atMs, target: pick(), workMs: 0 };
  }
  return blocksOf(arrivals(), options.shard);
}

/** Packs arrivals into blocks and keeps only those of the shard. */
export function blocksOf(
  arrivals: Iterable<Arrival> | AsyncIterable<Arrival>,
  shard: Shard = { index: 0, count: 1 },
): ArrivalSource {
  const iterator =
    Symbol.asyncIterator in arrivals ? arrivals[Symbol.asyncIterator]() : arrivals[Symbol.iterator]();
  let sequence = -1;
  let isDone = false;
  return {
    async next() {
      if (isDone) return null;
      const block = newBlock();
      let count = 0;
      while (count < blockSize) {
        const step = iterator.next();
        const result = step instanceof Promise ? await step : step;
        if (result.done) {
          isDone = true;
          break;
        }
        sequence += 1;
        if (sequence % shard.count !== shard.index) continue;
        block.atMs[count] = result.value.atMs;
        block.sequence[count] = sequence;
        block.target[count] = result.value.target;
        block.workMs[count] = result.value.workMs;
        count += 1;
      }
      return count === 0 ? null : { ...block, count };
    },
  };
}

function newBlock() {
  return {
    atMs: new Float64Array(blockSize),
    sequence: new Float64Array(blockSize),
    target: new Uint32Array(blockSize),
    workMs: new Float32Array(blockSize),
  };
}
