/** One try at a rate. */
export interface Probe {
  readonly ratePerSecond: number;
  readonly isSustained: boolean;
  /** Why not, or how close. */
  readonly reasons: readonly string[];
  readonly p99Ms: number | null;
  /** What limited it most, as far as the run shows. */
  readonly limitedBy: string;
}

/** The outcome of a search. */
export interface Capacity {
  /** The highest rate that held; 0 when not even the lowest did. */
  readonly ratePerSecond: number;
  /** `true` when a second run at that rate held too. */
  readonly isConfirmed: boolean;
  /** What stopped the next higher rate; empty when the highest allowed rate held. */
  readonly limitedBy: string;
  readonly probes: readonly Probe[];
}

/** Bounds of a search; rates are arrivals a second. */
export interface SearchOptions {
  readonly fromPerSecond: number;
  readonly toPerSecond: number;
  /** Stops when the rates that hold and fail are this close, as a share: 0.05 is 5 %. */
  readonly precision: number;
  readonly maxProbes: number;
  readonly signal: AbortSignal;
}

/**
 * Doubles the rate until one fails, then halves the gap between the highest that held and the lowest that failed, on a
 * logarithmic scale. The answer is tried a second time: near the limit, one run may hold by luck. When it then fails,
 * the next lower rate that held is the answer, unconfirmed.
 */
export async function findCapacity(
  probe: (ratePerSecond: number) => Promise<Probe>,
  options: SearchOptions,
): Promise<Capacity> {
  const probes: Probe[] = [];
  const attempt = async (rate: number) => {
    const result = await probe(rate);
    probes.push(result);
    return result;
  };
  const mayGoOn = () => probes.length < options.maxProbes && !options.signal.aborted;

  let held = 0;
  let failed = Number.POSITIVE_INFINITY;
  for (let rate = options.fromPerSecond; mayGoOn(); rate = Math.min(options.toPerSecond, rate * 2)) {
    const result = await attempt(rate);
    if (!result.isSustained) {
      failed = rate;
      break;
    }
    held = rate;
    if (rate >= options.toPerSecond) break;
  }
  while (held > 0 && Number.isFinite(failed) && failed / held > 1 + options.precision && mayGoOn()) {
    const middle = Math.sqrt(held * failed);
    if ((await attempt(middle)).isSustained) held = middle;
    else failed = middle;
  }
  const limit = () =>
    probes.filter((one) => !one.isSustained).sort((a, b) => a.ratePerSecond - b.ratePerSecond)[0]
      ?.limitedBy ?? '';
  if (held === 0 || options.signal.aborted) {
    return { ratePerSecond: held, isConfirmed: false, limitedBy: limit(), probes };
  }
  const again = await attempt(held);
  if (again.isSustained) return { ratePerSecond: held, isConfirmed: true, limitedBy: limit(), probes };
  const lower = probes
    .filter((one) => one.isSustained && one.ratePerSecond < held)
    .map((one) => one.ratePerSecond);
  return { ratePerSecond: Math.max(0, ...lower), isConfirmed: false, limitedBy: again.limitedBy, probes };
}
