import { z } from 'zod';
import { defineScenario } from './define.ts';
import { invocationOptions, prepareInvocations } from './invoke.ts';

/** Many callers at one instant, on a pool at rest. */
export const burst = defineScenario({
  kind: 'requests',
  name: 'burst',
  proves:
    'what callers wait when many of them come in the same instant to a pool at rest, and that none is lost',
  options: z.strictObject({
    ...invocationOptions,
    size: z.number().int().min(1).max(2_000).default(32).describe('callers of one burst'),
    everyMs: z.number().int().min(100).default(10_000),
    bursts: z.number().int().min(1).max(1_000).default(6),
  }),
  profile: (options) => ({
    kind: 'burst',
    size: options.size,
    everyMs: options.everyMs,
    durationMs: options.everyMs * options.bursts,
  }),
  thresholds: () => ['count(requests{outcome=failed}) == 0', 'count(requests{outcome=timeout}) == 0'],
  prepare: prepareInvocations,
});

/**
 * Bursts larger than the pool's floor with pauses longer than its idle time: the first callers of each meet ready
 * machines, the next ones restores, the last ones spawns, and the report keeps them apart.
 */
export const coldVsWarm = defineScenario({
  kind: 'requests',
  name: 'cold-vs-warm',
  proves: 'what each start type costs a caller: ready, restored, spawned and reused, never mixed',
  options: z.strictObject({
    ...invocationOptions,
    size: z.number().int().min(2).max(2_000).default(8).describe('more than the template’s `pool.ready`'),
    quietMs: z.number().int().min(100).default(70_000).describe('longer than the template’s `ttl.idleMs`'),
    rounds: z.number().int().min(1).max(1_000).default(5),
  }),
  profile: (options) => ({
    kind: 'burst',
    size: options.size,
    everyMs: options.quietMs,
    durationMs: options.quietMs * options.rounds,
  }),
  prepare: prepareInvocations,
});
