import { createRandom } from '../schedule/random.ts';
import { type Arrival, type ArrivalSource, blocksOf, type Shard } from '../schedule/source.ts';
import { readAzure2019, readHuaweiCounts } from './counting-formats.ts';
import { eventFormats, readEvents } from './event-formats.ts';
import type { TraceInvocation } from './invocation.ts';
import type { TraceOptions } from './options.ts';
import { spread } from './spread.ts';

/** Invocations of the window in order, in trace time from the window's start. Seeded where the format only counts. */
export function readTrace(options: TraceOptions, seed: number): AsyncIterable<TraceInvocation> {
  const window = { fromMs: options.skipMs, toMs: options.skipMs + options.takeMs };
  const random = createRandom(seed, 'trace-spacing');
  switch (options.format) {
    case 'azure-2019':
      return shifted(spread(readAzure2019(options.file, window), options.spacing, random), window.fromMs);
    case 'huawei-minute':
      return shifted(
        spread(readHuaweiCounts(options.file, 60_000, window), options.spacing, random),
        window.fromMs,
      );
    case 'huawei-second':
      return shifted(
        spread(readHuaweiCounts(options.file, 1_000, window), options.spacing, random),
        window.fromMs,
      );
    case 'azure-2021':
    case 'huawei-request':
      return shifted(readEvents(options.file, eventFormats[options.format], window), window.fromMs);
  }
}

/** A schedule that replays a trace: time divided by `speed`, functions laid over the templates in turn. */
export function createTraceSource(options: {
  readonly trace: TraceOptions;
  readonly seed: number;
  readonly targets: number;
  readonly shard?: Shard;
}): ArrivalSource {
  const { trace, seed, targets } = options;
  const keep = createRandom(seed, 'trace-sample');
  async function* arrivals(): AsyncGenerator<Arrival> {
    for await (const invocation of readTrace(trace, seed)) {
      if (trace.sample < 1 && keep.uniform() >= trace.sample) continue;
      yield {
        atMs: invocation.atMs / trace.speed,
        target: invocation.functionIndex % targets,
        workMs: invocation.durationMs,
      };
    }
  }
  return blocksOf(arrivals(), options.shard);
}

async function* shifted(
  invocations: AsyncIterable<TraceInvocation>,
  byMs: number,
): AsyncGenerator<TraceInvocation> {
  for await (const invocation of invocations) {
    yield byMs === 0 ? invocation : { ...invocation, atMs: invocation.atMs - byMs };
  }
}
