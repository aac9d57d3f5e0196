/** Sandboxes under `/v1/sandboxes`, field by field; the gateway's routes, the edge's contract and the SDK share these schemas. */
import { z } from 'zod';
import { digestSchema, templateNameSchema } from './admin.ts';
import { networkChoiceSchema, networkRulesSchema } from './network.ts';

const epochMs = z.number().int().nonnegative();
export const sandboxIdSchema = z.string().regex(/^[a-z0-9]{20}$/);
export const snapshotNameSchema = z.string().regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
/** Id of a snapshot: the node in its first four characters, like a sandbox's. */
export const snapshotIdSchema = z.string().regex(/^[a-z0-9]{20}$/);
export const metadataSchema = z
  .record(z.string().min(1).max(128), z.string().max(4096))
  .refine((map) => Object.keys(map).length <= 64, 'at most 64 entries');
export const environmentSchema = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(16_384))
  .refine((map) => Object.keys(map).length <= 256, 'at most 256 entries');

/** What a door keeps with the sandboxes it made, such as who may reach their ports. Children have it of their source. */
export const attributesSchema = z
  .record(z.string().regex(/^[a-z0-9][a-z0-9.-]{0,63}$/), z.string().max(16_384))
  .refine((map) => Object.keys(map).length <= 16, 'at most 16 entries');

export const sandboxStates = [
  'running',
  'pausing',
  'paused',
  'resuming',
  'snapshotting',
  'rewinding',
  'ended',
] as const;

/** Why something ended, and whose fault it was; RL users mask `infra: true`. */
export const terminationSchema = z.strictObject({
  reason: z.enum([
    'killed',
    'deadline',
    'exited',
    'signal',
    'out_of_memory',
    'disk_full',
    'guest_panic',
    'vmm_lost',
    'node_pressure',
    'restore_failed',
    'edge_lost',
  ]),
  infra: z.boolean().describe('true: an infrastructure failure, not the task’s own'),
  evidence: z.string().max(8192).describe('last lines, exit status or signal that the verdict rests on'),
  at: epochMs,
});
export type Termination = z.infer<typeof terminationSchema>;

export const createSandboxRequestSchema = z.strictObject({
  template: z.string().min(1).max(200).optional().describe('name, name@version or name@alias'),
  snapshot: z.string().min(1).max(200).optional().describe('snapshot id or `snapshot:name`'),
  deadlineMs: z
    .number()
    .int()
    .min(1000)
    .max(30 * 86_400_000)
    .default(300_000)
    .describe('life from now on; renewable'),
  onTimeout: z.enum(['kill', 'pause']).default('kill'),
  autoResume: z.boolean().default(false).describe('a request to it wakes it from pause'),
  metadata: metadataSchema.default({}),
  env: environmentSchema.default({}).describe('seen by every command'),
  secrets: environmentSchema
    .default({})
    .describe(
      'like env, but stored only sealed under a key of the node and never shown again; gone from children unless given again',
    ),
  attributes: attributesSchema.optional().describe('kept for the door that made it; means nothing here'),
  network: networkRulesSchema.optional().describe('rules instead of those of the template'),
});
export type CreateSandboxRequest = z.infer<typeof createSandboxRequestSchema>;

export const sandboxSchema = z.strictObject({
  id: sandboxIdSchema,
  node: z.string(),
  template: templateNameSchema,
  version: z.string(),
  digest: digestSchema,
  state: z.enum(sandboxStates),
  createdAt: epochMs,
  startedAt: epochMs.describe('last time it began to run'),
  deadlineAt: epochMs.describe('when onTimeout happens'),
  generation: z.number().int().describe('grows with each change of deadline; older timers are void'),
  onTimeout: z.enum(['kill', 'pause']),
  autoResume: z.boolean(),
  metadata: metadataSchema,
  env: environmentSchema,
  attributes: attributesSchema.optional(),
  vcpus: z.number().int(),
  memoryMiB: z.number().int(),
  diskMiB: z.number().int(),
  parent: z.strictObject({ kind: z.enum(['sandbox', 'snapshot']), id: z.string() }).nullable(),
  /** Snapshot whose state it last started from; the root of its own snapshots. */
  basis: snapshotIdSchema.nullable(),
  start: z.enum(['ready', 'restored', 'spawned', 'forked', 'resumed']),
  termination: terminationSchema.nullable(),
  network: networkChoiceSchema.optional().describe('its own network rules; absent: those of its template'),
});
export type SandboxInfo = z.infer<typeof sandboxSchema>;
/** The only answers that carry the token: create, fork, resume. It opens the sandbox's ports when they are not public. */
export const createdSandboxSchema = z.strictObject({ ...sandboxSchema.shape, token: z.string() });
export type CreatedSandbox = z.infer<typeof createdSandboxSchema>;

export const forkRequestSchema = z.strictObject({
  count: z.number().int().min(1).max(100).default(1),
  deadlineMs: z
    .number()
    .int()
    .min(1000)
    .max(30 * 86_400_000)
    .optional()
    .describe("default: what is left of the source's"),
  metadata: metadataSchema.optional().describe("merged over the source's"),
});
export type ForkRequest = z.infer<typeof forkRequestSchema>;
export const forkResultSchema = z.strictObject({
  children: z.array(
    z.union([
      z.strictObject({ sandbox: createdSandboxSchema }),
      z.strictObject({ error: z.record(z.string(), z.unknown()) }),
    ]),
  ),
  notInherited: z
    .array(z.string())
    .describe('what the children do not have of their source, such as secrets'),
  /** How long the source stood still, and what of it. */
  timing: z.strictObject({
    stoppedMs: z.number(),
    stateMs: z.number(),
    pagesMs: z.number(),
    diskMs: z.number(),
    dirtyBytes: z.number(),
  }),
});
export type ForkResult = z.infer<typeof forkResultSchema>;

export const snapshotSchema = z.strictObject({
  id: snapshotIdSchema,
  name: snapshotNameSchema.nullable(),
  sandbox: sandboxIdSchema,
  template: templateNameSchema,
  version: z.string(),
  digest: digestSchema,
  parent: snapshotIdSchema.nullable(),
  createdAt: epochMs,
  isPinned: z.boolean(),
  bytes: z.number().int().describe('its own delta, state and disk layer'),
});
export type SnapshotInfo = z.infer<typeof snapshotSchema>;
export const createSnapshotRequestSchema = z.strictObject({
  name: snapshotNameSchema.optional(),
  isPinned: z.boolean().default(false),
});
export type CreateSnapshotRequest = z.infer<typeof createSnapshotRequestSchema>;
export const rewindRequestSchema = z.strictObject({ snapshot: z.string().min(1).max(200) });

export const sandboxEventSchema = z.strictObject({
  sequence: z.number().int(),
  at: epochMs,
  sandbox: sandboxIdSchema,
  type: z.enum([
    'created',
    'forked',
    'pausing',
    'paused',
    'resuming',
    'resumed',
    'snapshotting',
    'snapshotted',
    'rewinding',
    'rewound',
    'settled',
    'secrets_lost',
    'deadline_changed',
    'network_changed',
    'ended',
    'process_ended',
  ]),
  data: z
    .record(z.string(), z.unknown())
    .describe(
      '`termination` for ended and process_ended; `state`, `after` and on failure `error` for settled, which says that a change is over',
    ),
});
export type SandboxEvent = z.infer<typeof sandboxEventSchema>;

export const setDeadlineRequestSchema = z.strictObject({
  deadlineMs: z
    .number()
    .int()
    .min(0)
    .max(30 * 86_400_000)
    .describe('from now on'),
  onlyExtend: z.boolean().default(false).describe('never shortens; for keep-alives'),
});

export const processStatusSchema = z.strictObject({
  id: z.string(),
  pid: z.number().int(),
  state: z.enum(['running', 'exited']),
  exitCode: z.number().int().nullable(),
  signal: z.number().int().nullable(),
  isTimedOut: z.boolean(),
  isOutOfMemory: z.boolean(),
  stdoutBytes: z.number().int(),
  stderrBytes: z.number().int(),
  stdinBytes: z.number().int(),
  termination: terminationSchema.nullable().describe('how it ended; null while it runs'),
});
export const startProcessRequestSchema = z
  .strictObject({
    id: z
      .string()
      .regex(/^[A-Za-z0-9_-]{1,64}$/)
      .optional(),
    argv: z.array(z.string().max(131_072)).min(1).max(4096).optional(),
    shell: z.string().max(131_072).optional().describe('run by `bash -lc` (sh where there is no bash)'),
    env: environmentSchema.default({}),
    cwd: z.string().startsWith('/').max(4096).optional(),
    user: z
      .string()
      .regex(/^[a-z_][a-z0-9_-]{0,31}$/)
      .default('user'),
    stdin: z.boolean().default(false),
    pty: z
      .strictObject({ cols: z.number().int().min(1).max(1000), rows: z.number().int().min(1).max(1000) })
      .optional(),
    timeoutMs: z
      .number()
      .int()
      .min(1)
      .max(30 * 86_400_000)
      .optional(),
  })
  .refine((value) => (value.argv === undefined) !== (value.shell === undefined), 'give either argv or shell');
export type StartProcessRequest = z.infer<typeof startProcessRequestSchema>;
