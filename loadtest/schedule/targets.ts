import { z } from 'zod';
import type { Random } from './random.ts';

/**
 * Which template an arrival goes to. `zipf`: the k-th template is drawn with weight `1 / k^exponent`, which is how
 * popularity is spread in the public function traces (a few hot templates, a long tail).
 */
export const targetingSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('round-robin') }),
  z.strictObject({ kind: z.literal('uniform') }),
  z.strictObject({ kind: z.literal('zipf'), exponent: z.number().min(0).max(10).default(1) }),
  z.strictObject({ kind: z.literal('weighted'), weights: z.array(z.number().min(0)).min(1).max(10_000) }),
]);

/** A validated choice of targets. */
export type Targeting = z.output<typeof targetingSchema>;

/**
 * A function that names the next target, an index below `count`. Throws a `RangeError` when `weighted` does not name a
 * weight for each target or when all are zero.
 */
export function createTargeting(targeting: Targeting, count: number, random: Random): () => number {
  if (targeting.kind === 'round-robin') {
    let next = 0;
    return () => next++ % count;
  }
  if (targeting.kind === 'uniform' || count === 1) return () => random.below(count);
  return drawWeighted(weightsOf(targeting, count), random);
}

function weightsOf(targeting: Extract<Targeting, { kind: 'zipf' | 'weighted' }>, count: number): number[] {
  if (targeting.kind === 'zipf') {
    return Array.from({ length: count }, (_, rank) => 1 / (rank + 1) ** targeting.exponent);
  }
  if (targeting.weights.length !== count) {
    throw new RangeError(`${targeting.weights.length} weights were given for ${count} templates`);
  }
  return targeting.weights;
}

function drawWeighted(weights: readonly number[], random: Random): () => number {
  let sum = 0;
  const cumulative = weights.map((weight) => {
    sum += weight;
    return sum;
  });
  if (!(sum > 0)) throw new RangeError('at least one template needs a weight above zero');
  return () => {
    const drawn = random.uniform() * sum;
    let low = 0;
    let high = cumulative.length - 1;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (cumulative[middle]! > drawn) high = middle;
      else low = middle + 1;
    }
    return low;
  };
}
