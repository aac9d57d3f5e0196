/** What the node keeps of sandboxes and snapshots, and how it shows them. */
import { z } from 'zod';
import {
  attributesSchema,
  environmentSchema,
  type MachineId,
  metadataSchema,
  networkChoiceSchema,
  type SandboxInfo,
  type SnapshotInfo,
  sandboxIdSchema,
  sandboxStates,
  snapshotIdSchema,
  snapshotNameSchema,
  terminationSchema,
} from '../../sdk/index.ts';
import { templateDefinitionSchema } from '../../templates/index.ts';
import { sealedSchema } from './sealed-secrets.ts';

const digestSchema = z.string().regex(/^sha256:[0-9a-f]{64}$/);
const epochMs = z.int().nonnegative();

/** What a machine of this origin is, whatever became of the version since. */
export const originSchema = z.strictObject({
  template: z.string(),
  version: z.string(),
  digest: digestSchema,
  definition: templateDefinitionSchema,
  shape: z.strictObject({
    vcpus: z.int(),
    memoryMiB: z.int(),
    diskMiB: z.int(),
    rootPath: z.string().startsWith('/'),
    hasNetworkCard: z.boolean().optional(),
  }),
});
export type Origin = z.output<typeof originSchema>;

/** Names a memory image and the disk below all layers, kept by `Bases`. */
export const baseIdSchema = z.string().regex(/^\d{1,20}-\d{1,20}$/);

export const sandboxRecordSchema = z.strictObject({
  id: sandboxIdSchema,
  origin: originSchema,
  base: baseIdSchema,
  state: z.enum(sandboxStates),
  createdAt: epochMs,
  startedAt: epochMs,
  /** Length of life that was asked for last; a resume gives it again. */
  deadlineMs: z.int().nonnegative(),
  deadlineAt: epochMs,
  generation: z.int(),
  onTimeout: z.enum(['kill', 'pause']),
  autoResume: z.boolean(),
  metadata: metadataSchema,
  env: environmentSchema,
  attributes: attributesSchema.optional(),
  secretNames: z.array(z.string()),
  /** Secrets as a `SecretBox` seals them; null when there are none, and once it ended. */
  sealedSecrets: sealedSchema.nullable().default(null),
  /** Processes (see `processKey`) that ended before it was made as a copy of another one. */
  endedBefore: z.array(z.string()).max(256).default([]),
  parent: z.strictObject({ kind: z.enum(['sandbox', 'snapshot']), id: z.string() }).nullable(),
  basis: snapshotIdSchema.nullable(),
  start: z.enum(['ready', 'restored', 'spawned', 'forked', 'resumed']),
  termination: terminationSchema.nullable(),
  /** The VMM that runs it, and what the agent inside expects of its host; null while there is none. */
  machine: z
    .strictObject({ id: sandboxIdSchema, channelToken: z.string().regex(/^[0-9a-f]{64}$/) })
    .nullable(),
  /** Snapshot that holds it while it is paused, and until a resume is done. */
  pausedAs: snapshotIdSchema.nullable(),
  /** Its own network rules; null: those of its template. */
  network: networkChoiceSchema.nullable().default(null),
});
export type SandboxRecord = z.output<typeof sandboxRecordSchema>;

export const snapshotRecordSchema = z.strictObject({
  id: snapshotIdSchema,
  /** `pause`: holds a paused sandbox, and is shown to nobody. */
  kind: z.enum(['user', 'pause']),
  name: snapshotNameSchema.nullable(),
  sandbox: sandboxIdSchema,
  origin: originSchema,
  base: baseIdSchema,
  parent: snapshotIdSchema.nullable(),
  createdAt: epochMs,
  isPinned: z.boolean(),
  bytes: z.int().nonnegative(),
  /** The rules that its sandbox had of its own, for what is made of it. */
  network: networkChoiceSchema.nullable().default(null),
});
export type SnapshotRecord = z.output<typeof snapshotRecordSchema>;

/** As the contract shows it. */
export function toSandboxInfo(record: SandboxRecord, node: string): SandboxInfo {
  const { id, origin, state, createdAt, startedAt, deadlineAt, generation, onTimeout, autoResume } = record;
  const { metadata, env, attributes, parent, basis, start, termination } = record;
  const { vcpus, memoryMiB, diskMiB } = origin.shape;
  return {
    id,
    node,
    template: origin.template as SandboxInfo['template'],
    version: origin.version,
    digest: origin.digest as SandboxInfo['digest'],
    ...{ state, createdAt, startedAt, deadlineAt, generation, onTimeout, autoResume, metadata, env },
    ...{ vcpus, memoryMiB, diskMiB, parent, basis, start, termination },
    ...(record.network === null ? {} : { network: record.network }),
    ...(attributes === undefined ? {} : { attributes }),
  };
}

export function toSnapshotInfo(record: SnapshotRecord): SnapshotInfo {
  const { id, name, sandbox, origin, parent, createdAt, isPinned, bytes } = record;
  return {
    ...{ id, name, sandbox, parent, createdAt, isPinned, bytes },
    template: origin.template as SnapshotInfo['template'],
    version: origin.version,
    digest: origin.digest as SnapshotInfo['digest'],
  };
}

export const machineOf = (record: SandboxRecord): MachineId | null =>
  (record.machine?.id ?? null) as MachineId | null;
