import { z } from 'zod';
import { isTemplateName, isVersionDigest } from '../../sdk/index.ts';
import { pacings } from '../driver/pacer.ts';
import { defaultGeneratorLimits } from '../gate/saturation.ts';
import { profileSchema } from '../schedule/profile.ts';
import { targetingSchema } from '../schedule/targets.ts';
import { traceOptionsSchema } from '../trace/options.ts';

const templateName = z.string().refine(isTemplateName, 'must be a template name: [a-z0-9-]{1,63}');
const digest = z.string().refine(isVersionDigest, 'must be sha256:<64 hex>');

/** Right digests by template. */
export const expectedDigestsSchema = z.record(templateName, z.array(digest).min(1).max(16));

/**
 * Everything that decides a run, as data: it crosses to worker threads and, without keys, goes into the result, so that
 * a run can be repeated from its own report.
 */
export const runPlanSchema = z.strictObject({
  /** A built-in scenario, or a path to a file whose default export comes from `defineScenario`. */
  scenario: z.string().min(1),
  scenarioOptions: z.record(z.string(), z.unknown()).default({}),
  /** Origin of the gateway. */
  url: z.url({ protocol: /^https?$/ }),
  /** API keys, one per tenant; arrivals take turns. None: no `authorization` is sent. */
  apiKeys: z.array(z.string().min(1).max(500)).max(64).default([]),
  templates: z.array(templateName).min(1).max(10_000),
  targeting: targetingSchema.default({ kind: 'round-robin' }),
  /** `closed` keeps `concurrency` requests open instead of following a schedule; its report says so. */
  loop: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('open'), profile: profileSchema }),
    z.strictObject({ kind: z.literal('trace'), trace: traceOptionsSchema }),
    z.strictObject({
      kind: z.literal('closed'),
      concurrency: z.number().int().min(1).max(10_000),
      durationMs: z
        .number()
        .int()
        .min(1)
        .max(7 * 24 * 3_600_000),
    }),
  ]),
  seed: z
    .number()
    .int()
    .min(0)
    .max(2 ** 31 - 1)
    .default(1),
  /** Sent and checked, but in no figure. */
  warmupMs: z.number().int().min(0).max(3_600_000).default(0),
  /** Limit of a request from its send; a timeout is recorded as this long. */
  timeoutMs: z.number().int().min(1).max(3_600_000).default(30_000),
  /** Open requests of one generator; arrivals beyond are dropped and counted. */
  maxInFlight: z.number().int().min(1).max(20_000).default(2_000),
  /**
   * Connections of one generator; `null`: as many as may be in flight. Fewer save the cost of opening them at rates of
   * thousands a second, but a request beyond waits in the client, which shows as service time.
   */
  maxConnections: z.number().int().min(1).max(20_000).nullable().default(null),
  /** An arrival later than this is dropped and counted. */
  dropAfterMs: z.number().int().min(1).max(60_000).default(1_000),
  /** Generators, each in a thread of its own when more than one. */
  workers: z.number().int().min(1).max(64).default(1),
  repeats: z.number().int().min(1).max(100).default(1),
  /** Rest between repeats. */
  restMs: z.number().int().min(0).max(3_600_000).default(1_000),
  pacing: z.enum(pacings).default('auto'),
  /** The function answers probes: check random bytes, clock, invocations and tenants too. */
  probe: z.boolean().default(false),
  /** Send an `Idempotency-Key` with each probe, and some probes twice: the second time must be answered like the first. */
  idempotency: z.boolean().default(false),
  /** Empty: what `latest` points to when the run starts. */
  expectedDigests: expectedDigestsSchema.default({}),
  limits: z
    .strictObject({
      lagP99Ms: z.number().positive().default(defaultGeneratorLimits.lagP99Ms),
      droppedRatio: z.number().min(0).max(1).default(defaultGeneratorLimits.droppedRatio),
    })
    .prefault({}),
  thresholds: z.array(z.string().min(1).max(500)).max(100).default([]),
  /** How often the server's resources are sampled; 0 never. */
  sampleEveryMs: z.number().int().min(0).max(60_000).default(1_000),
  /** Compare machines and files of the server before and after; anything left fails the run. */
  leakCheck: z.boolean().default(false),
});

/** A validated plan. */
export type RunPlan = z.output<typeof runPlanSchema>;
/** A plan as people write it. */
export type RunPlanInput = z.input<typeof runPlanSchema>;

/** The plan without what must not be kept. */
export function publicPlan(plan: RunPlan): Omit<RunPlan, 'apiKeys'> & { readonly tenants: number } {
  const { apiKeys, ...rest } = plan;
  return { ...rest, tenants: Math.max(1, apiKeys.length) };
}
