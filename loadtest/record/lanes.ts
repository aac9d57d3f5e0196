import { Durations } from './histogram.ts';
import { startLabels } from './labels.ts';
import type { Labels } from './series.ts';

/** Something that was timed, under the name a report gives it: `all`, a start type, or a step. */
export interface Lane {
  readonly lane: string;
  readonly kind: 'all' | 'start' | 'step';
  readonly durations: Durations;
}

const servedOutcomes: readonly string[] = ['ok', 'timeout'];

/**
 * Latency of what was served, together, by start type and by step, without empty ones. Refusals and failures are quick
 * and are counted instead; timeouts count at their limit.
 */
export function servedLanes(
  series: readonly { readonly metric: string; readonly labels: Labels; readonly durations: Durations }[],
  metric: 'latency' | 'service' = 'latency',
): Lane[] {
  const pick = (of: string, isWanted: (labels: Labels) => boolean) =>
    Durations.union(
      series
        .filter(
          (one) =>
            one.metric === of && servedOutcomes.includes(one.labels.outcome ?? '') && isWanted(one.labels),
        )
        .map((one) => one.durations),
    );
  const steps = [
    ...new Set(series.filter((one) => one.metric === 'step').map((one) => one.labels.name ?? '')),
  ];
  const lanes: Lane[] = [
    { lane: 'all', kind: 'all', durations: pick(metric, () => true) },
    ...startLabels.map(
      (start): Lane => ({
        lane: start,
        kind: 'start',
        durations: pick(metric, (labels) => labels.start === start),
      }),
    ),
    ...steps.map(
      (name): Lane => ({
        lane: name,
        kind: 'step',
        durations: pick('step', (labels) => labels.name === name),
      }),
    ),
  ];
  return lanes.filter(({ durations }) => durations.count > 0);
}
