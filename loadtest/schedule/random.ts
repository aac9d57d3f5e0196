import { uniformFloat64 } from 'pure-rand/distribution/uniformFloat64';
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus';

/** Seeded randomness of one purpose. The same seed and stream give the same numbers on every machine. */
export interface Random {
  /** Uniform in [0, 1). */
  uniform(): number;
  /** Exponential with mean 1: the gaps of a Poisson process of rate 1. */
  exponential(): number;
  /** Uniform whole number in [0, bound). */
  below(bound: number): number;
}

/**
 * A generator for one named stream of a seed. Streams keep purposes apart: drawing one more template never moves an
 * arrival, so two runs that differ in one option stay comparable in all others.
 */
export function createRandom(seed: number, stream: string): Random {
  const generator = xoroshiro128plus(mix(seed, stream));
  const uniform = () => uniformFloat64(generator);
  return {
    uniform,
    // 1 - u lies in (0, 1], so the logarithm is finite.
    exponential: () => -Math.log(1 - uniform()),
    below: (bound) => Math.floor(uniform() * bound),
  };
}

/** FNV-1a over the stream's name, started from the seed. */
function mix(seed: number, stream: string): number {
  let hash = (2166136261 ^ seed) | 0;
  for (let index = 0; index < stream.length; index++) {
    hash = Math.imul(hash ^ stream.charCodeAt(index), 16777619);
  }
  return hash;
}
