import { z } from 'zod';
import { defineScenario } from './define.ts';
import { invocationOptions, prepareInvocations } from './invoke.ts';

/** Calm, then more than the node can serve, then calm again. */
export const overload = defineScenario({
  kind: 'requests',
  name: 'overload',
  proves:
    'that a node past its capacity serves what it can, refuses the rest at once with Retry-After, and recovers by itself',
  options: z.strictObject({
    ...invocationOptions,
    calmPerSecond: z.number().positive().max(100_000).default(10),
    floodPerSecond: z.number().positive().max(100_000).default(500),
    calmMs: z.number().int().min(1_000).default(10_000),
    floodMs: z.number().int().min(1_000).default(20_000),
  }),
  profile: ({ calmPerSecond, floodPerSecond, calmMs, floodMs }) => ({
    kind: 'step',
    steps: [
      { ratePerSecond: calmPerSecond, durationMs: calmMs },
      { ratePerSecond: floodPerSecond, durationMs: floodMs },
      { ratePerSecond: calmPerSecond, durationMs: calmMs },
    ],
  }),
  thresholds: () => [
    'count(requests{outcome=failed}) == 0',
    'count(requests{outcome=timeout}) == 0',
    'count(requests{outcome=refused}) > 0',
    'p99(latency{outcome=refused}) < 10s',
  ],
  planDefaults: { leakCheck: true },
  prepare: prepareInvocations,
});

/** The same moderate load for a long time. */
export const soak = defineScenario({
  kind: 'requests',
  name: 'soak',
  proves: 'that hours of moderate load neither fail, nor slow down, nor leave anything behind',
  options: z.strictObject({
    ...invocationOptions,
    ratePerSecond: z.number().positive().max(100_000).default(20),
    durationMs: z.number().int().min(1_000).default(3_600_000),
  }),
  profile: ({ ratePerSecond, durationMs }) => ({ kind: 'poisson', ratePerSecond, durationMs }),
  thresholds: () => ['ratio(errors) <= 0.1%', 'ratio(requests{outcome=refused}) <= 0.1%'],
  planDefaults: { leakCheck: true },
  prepare: prepareInvocations,
});
