/** The admin API under `/v1`, field by field. One schema gives the route, the type and the OpenAPI document. */
import { z } from 'zod';
import { templateNamePattern } from '../ids.ts';
import { startTypes } from '../invocation.ts';
import { networkRefusalSchema } from './network.ts';

const epochMs = z.number().int().nonnegative().describe('instant, epoch milliseconds');
const milliseconds = z.number().nonnegative();

export const templateNameSchema = z
  .string()
  .regex(templateNamePattern, '1 to 63 of a-z, 0-9 and -, no dash at the ends');
export const digestSchema = z.string().regex(/^sha256:[0-9a-f]{64}$/);
export const versionNameSchema = z.string().regex(/^v[1-9][0-9]{0,8}$/);
export const aliasNameSchema = z.string().regex(/^(?!v[0-9]+$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);

/** What a finished build reports, and what a version keeps for ever. */
export const versionFactsSchema = z.strictObject({
  digest: digestSchema,
  builtAt: epochMs,
  buildMs: milliseconds,
  memoryBytes: z.number().int().describe('bytes of the base memory image that are really stored'),
  stateBytes: z.number().int(),
  diskBytes: z.number().int(),
  accelerator: z.enum(['kvm', 'tcg']),
  verifyRestoreMs: milliseconds.describe('state load to agent answered, in the verifying restore'),
  verifyFirstResponseMs: milliseconds.nullable().describe('null for templates without a start command'),
});
export type VersionFacts = z.infer<typeof versionFactsSchema>;

export const versionSchema = z.strictObject({
  version: versionNameSchema,
  digest: digestSchema,
  createdAt: epochMs,
  aliases: z.array(aliasNameSchema),
  facts: versionFactsSchema,
  definition: z.record(z.string(), z.unknown()).describe('the whole definition, defaults filled in'),
});
export type Version = z.infer<typeof versionSchema>;

/** Weights are relative; one target is the usual case. */
export const aliasTargetSchema = z.strictObject({
  version: versionNameSchema,
  weight: z.number().int().min(1).max(1000).default(1),
});
export const aliasSchema = z.strictObject({
  template: templateNameSchema,
  alias: aliasNameSchema,
  targets: z.array(aliasTargetSchema).min(1).max(16),
  updatedAt: epochMs,
});
export type Alias = z.infer<typeof aliasSchema>;
export const setAliasRequestSchema = z.strictObject({ targets: z.array(aliasTargetSchema).min(1).max(16) });

export const templateSchema = z.strictObject({
  name: templateNameSchema,
  createdAt: epochMs,
  versions: z.number().int(),
  latest: versionNameSchema.nullable(),
  public: z.boolean(),
});
export type Template = z.infer<typeof templateSchema>;
export const templateDetailSchema = z.strictObject({
  ...templateSchema.shape,
  history: z.array(versionSchema),
  aliases: z.array(aliasSchema),
});
export type TemplateDetail = z.infer<typeof templateDetailSchema>;

/** One line of the NDJSON answer of a publish. The last line is `result` or `error`. */
export const publishEventSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('task'),
    id: z.string(),
    title: z.string(),
    state: z.enum(['started', 'done', 'failed', 'skipped']),
    ms: milliseconds.optional(),
  }),
  z.strictObject({
    type: z.literal('output'),
    id: z.string(),
    text: z.string().describe('output of the build or the guest, control characters escaped'),
  }),
  z.strictObject({
    type: z.literal('result'),
    template: templateNameSchema,
    version: versionNameSchema,
    digest: digestSchema,
    unchanged: z.boolean(),
    facts: versionFactsSchema,
  }),
  z.strictObject({ type: z.literal('error'), problem: z.record(z.string(), z.unknown()) }),
]);
export type PublishEvent = z.infer<typeof publishEventSchema>;

export const machineSchema = z.strictObject({
  id: z.string(),
  node: z.string(),
  template: templateNameSchema,
  version: z.string(),
  digest: digestSchema,
  state: z.enum(['spawning', 'blank', 'restoring', 'ready', 'waking', 'serving', 'disposing']),
  startedAt: epochMs,
  invocations: z.number().int(),
  inFlight: z.number().int(),
  pid: z.number().int(),
  privateBytes: z
    .number()
    .int()
    .nullable()
    .describe('guest RAM that is not shared with the template; null when not sampled'),
});
export type MachineInfo = z.infer<typeof machineSchema>;

export const poolSchema = z.strictObject({
  node: z.string(),
  template: templateNameSchema,
  version: z.string(),
  digest: digestSchema,
  isDraining: z.boolean(),
  target: z.strictObject({ ready: z.number().int(), blank: z.number().int(), max: z.number().int() }),
  blank: z.number().int(),
  restoring: z.number().int(),
  ready: z.number().int(),
  serving: z.number().int(),
  waiting: z.number().int(),
  starts: z.strictObject(
    Object.fromEntries(startTypes.map((type) => [type, z.number().int()])) as Record<
      (typeof startTypes)[number],
      z.ZodNumber
    >,
  ),
  failures: z.number().int(),
  lastFailure: z.string().nullable(),
  sizing: z
    .strictObject({
      ready: z.number().int().describe('ready machines it aims at now'),
      because: z.string().describe('the decision in a sentence'),
      refillMs: milliseconds.describe('what it takes to put a new ready machine in place of a taken one'),
    })
    .optional(),
  hitRate: z
    .number()
    .nullable()
    .optional()
    .describe('share of leases that found a machine ready or reused, 0 to 1; null before the first lease'),
  refusals: z.record(z.string(), z.number().int()).optional().describe('requests refused, by error code'),
  discards: z.record(z.string(), z.number().int()).optional().describe('machines given up, by reason'),
  serviceMs: milliseconds.nullable().optional().describe('moving average of how long a lease is held'),
});
export type PoolInfo = z.infer<typeof poolSchema>;

export const nodeSchema = z.strictObject({
  id: z.string(),
  isReady: z.boolean(),
  isDraining: z.boolean(),
  accelerator: z.enum(['kvm', 'tcg']),
  acceleratorReason: z.string(),
  isTenantBoundary: z.boolean().describe('false under software emulation'),
  machines: z.number().int(),
  maxMachines: z.number().int(),
  versions: z.number().int(),
  startedAt: epochMs,
  network: z
    .strictObject({
      lack: z.string().nullable().describe('why it can not enforce network rules; null: it can'),
      permittedRanges: z.array(z.string()).describe('ranges of the floor that rules may open here'),
    })
    .optional(),
  disk: z
    .strictObject({
      usedBytes: z
        .number()
        .int()
        .describe(
          'allocated for versions, snapshots, bases and scratch layers of machines; links count once',
        ),
      freeBytes: z.number().int().describe('left on their filesystem'),
    })
    .nullable()
    .optional()
    .describe('null when the filesystem does not answer'),
});
export type NodeInfo = z.infer<typeof nodeSchema>;

/** What a key may do; null: no such limit. Calls of functions, new sandboxes and forks count. */
export const keyLimitsSchema = z.strictObject({
  ratePerSecond: z
    .number()
    .positive()
    .max(1_000_000)
    .nullable()
    .default(null)
    .describe('requests a second, with bursts of one second’s worth'),
  requestsPerDay: z.number().int().min(1).nullable().default(null).describe('requests a UTC day'),
});
export type KeyLimits = z.infer<typeof keyLimitsSchema>;

export const keySchema = z.strictObject({
  id: z.string(),
  name: z.string(),
  prefix: z.string().describe('first characters of the key, enough to recognise it'),
  createdAt: epochMs,
  lastUsedAt: epochMs.nullable(),
  limits: keyLimitsSchema.optional(),
  requestsToday: z.number().int().optional(),
});
export type KeyInfo = z.infer<typeof keySchema>;
export const createKeyRequestSchema = z.strictObject({
  name: z.string().min(1).max(100),
  limits: keyLimitsSchema.prefault({}),
});
/** The only answer that ever carries the key itself. */
export const createdKeySchema = z.strictObject({ ...keySchema.shape, key: z.string() });
export type CreatedKey = z.infer<typeof createdKeySchema>;

/** One line of `GET /v1/logs` (NDJSON). */
export const logLineSchema = z.strictObject({
  at: epochMs,
  machine: z.string(),
  stream: z.enum(['stdout', 'stderr', 'console', 'network']),
  text: z.string(),
  network: networkRefusalSchema.optional().describe('what was refused, in lines of the stream network'),
});
export type LogLine = z.infer<typeof logLineSchema>;

export const listOf = <T extends z.ZodType>(item: T) => z.strictObject({ items: z.array(item) });

/** One limit, what is used of it, and what raises it: an entry of `GET /v1/limits`, and the body of a 429 says the same. */
export const limitSchema = z.strictObject({
  scope: z.enum(['key', 'template', 'node']),
  name: z.string().describe('id of the key, name@version of the template, or id of the node'),
  knob: z.string().describe('what to change to raise it'),
  limit: z.number().nullable().describe('null: none'),
  used: z.number().nullable().describe('null where it is not counted, as for rates'),
});
export type LimitInfo = z.infer<typeof limitSchema>;

/** The body of every error which Snapgate makes: RFC 9457 members, and those of E2B's API. */
export const problemSchema = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.number().int(),
    detail: z.string(),
    code: z.number().int().describe('the status again, where clients of E2B look for it'),
    message: z.string().describe('the detail again, where clients of E2B look for it'),
    error_code: z.string().describe('what a program should look at'),
    remediation: z.string(),
    request_id: z.string().optional(),
  })
  .describe('problem document');

/** Query of `GET /v1/logs`. */
export const logQuerySchema = z.strictObject({
  template: templateNameSchema,
  version: z.string().max(80).optional().describe('a version or an alias; default: all versions'),
  machine: z.string().max(20).optional(),
  stream: z
    .union([logLineSchema.shape.stream, z.array(logLineSchema.shape.stream).max(4)])
    .optional()
    .describe('may be repeated; default: stdout and stderr'),
  tail: z.coerce.number().int().min(0).max(10_000).default(100).describe('lines of history per machine'),
  follow: z
    .enum(['true', 'false'])
    .default('false')
    .describe('go on with new lines until the client closes the connection'),
});
export type LogQueryInput = z.input<typeof logQuerySchema>;
