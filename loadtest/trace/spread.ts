import { GatewayError } from '../../sdk/index.ts';
import type { Random } from '../schedule/random.ts';
import type { CountBucket, TraceInvocation } from './invocation.ts';
import type { TraceOptions } from './options.ts';

/** Most invocations of one interval. */
const maxPerBucket = 5_000_000;

/**
 * Places counted invocations within their interval: `uniform` at random instants, which is a Poisson process given the
 * count and so the same as `poisson`; `equidistant` evenly, each function from its own random offset, so that a
 * thousand functions called once a minute do not all fire on the minute.
 */
export async function* spread(
  buckets: AsyncIterable<CountBucket>,
  spacing: TraceOptions['spacing'],
  random: Random,
): AsyncGenerator<TraceInvocation> {
  for await (const bucket of buckets) {
    const total = bucket.counts.reduce((sum, { count }) => sum + count, 0);
    if (total > maxPerBucket) {
      throw new GatewayError(
        'invalid_request',
        `more than ${maxPerBucket} invocations in one interval of the trace`,
      );
    }
    const instants = new Float64Array(total);
    const owners = new Uint32Array(total);
    let next = 0;
    for (const { functionIndex, count } of bucket.counts) {
      const offset = random.uniform();
      for (let index = 0; index < count; index++) {
        const share = spacing === 'equidistant' ? (index + offset) / count : random.uniform();
        instants[next] = bucket.startMs + share * bucket.lengthMs;
        owners[next] = functionIndex;
        next += 1;
      }
    }
    const order = Uint32Array.from(instants.keys()).sort((left, right) => instants[left]! - instants[right]!);
    for (const index of order) {
      yield { atMs: instants[index]!, functionIndex: owners[index]!, durationMs: 0 };
    }
  }
}
