/** Synthetic traffic for the simulator: reproducible from a seed, made as it is read, so that a long trace takes no memory. */

/** One invocation. */
export interface SimulatedCall {
  /** Milliseconds since the start of the trace; never decreasing. */
  readonly atMs: number;
  /** Index of its template. */
  readonly template: number;
  /** How long the function runs. */
  readonly durationMs: number;
}

export interface SyntheticTraceOptions {
  readonly seed: number;
  readonly templates: number;
  readonly hours: number;
  /** Mean over the whole trace and all templates. */
  readonly callsPerSecond: number;
  /** Popularity of the k-th template is k^-zipf. Default 1.1: a few carry most of the load, most are rare. */
  readonly zipf?: number;
  /** Share by which the rate swings around its mean over 24 hours, 0–1. Default 0.6. */
  readonly swing?: number;
  /** Share of arrivals that bring a burst of 2 to 20 calls to the same template within a second. Default 0.02. */
  readonly burstShare?: number;
  /** Median and spread (sigma of the logarithm) of durations. Defaults 80 ms and 1. */
  readonly medianMs?: number;
  readonly sigma?: number;
}

/** Uniform in [0, 1) from a 32-bit seed (the "mulberry32" generator): good enough for jitter and traffic, never for secrets. */
export function createSeededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Poisson arrivals whose rate follows the day, Zipf over templates, log-normal durations, and bursts. */
export function* syntheticTrace(options: SyntheticTraceOptions): Generator<SimulatedCall> {
  const { templates, hours, callsPerSecond, zipf = 1.1, swing = 0.6, burstShare = 0.02 } = options;
  const { medianMs = 80, sigma = 1 } = options;
  const random = createSeededRandom(options.seed);
  const popularity = cumulative(Array.from({ length: templates }, (_, rank) => (rank + 1) ** -zipf));
  const meanBurst = 1 + burstShare * 11;
  const endMs = hours * 3_600_000;
  const later: SimulatedCall[] = [];

  const duration = () => medianMs * Math.exp(sigma * normal(random));
  for (let atMs = 0; ; ) {
    const phase = Math.sin((2 * Math.PI * atMs) / 86_400_000);
    const perMs = (callsPerSecond * (1 + swing * phase)) / meanBurst / 1000;
    atMs += -Math.log(1 - random()) / perMs;
    while (later.length > 0 && later[0]!.atMs <= Math.min(atMs, endMs)) yield later.shift()!;
    if (atMs >= endMs) return;
    const template = pick(popularity, random());
    yield { atMs, template, durationMs: duration() };
    if (random() >= burstShare) continue;
    const extra = 1 + Math.floor(random() * 21);
    for (let call = 0; call < extra; call += 1) {
      later.push({ atMs: atMs + random() * 1000, template, durationMs: duration() });
    }
    later.sort((a, b) => a.atMs - b.atMs);
  }
}

function cumulative(weights: readonly number[]): number[] {
  let sum = 0;
  const sums = weights.map((weight) => (sum += weight));
  return sums.map((value) => value / sum);
}

/** First index whose cumulative share exceeds `share`. */
function pick(cumulated: readonly number[], share: number): number {
  let low = 0;
  let high = cumulated.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cumulated[middle]! > share) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Standard normal by the Box–Muller transform. */
const normal = (random: () => number): number =>
  Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
