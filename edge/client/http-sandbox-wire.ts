/** Calls about sandboxes as they cross between gateway and edge, field by field. */
import { z } from 'zod';
import {
  createdSandboxSchema,
  createSandboxRequestSchema,
  createSnapshotRequestSchema,
  environmentSchema,
  forkRequestSchema,
  forkResultSchema,
  isSandboxId,
  metadataSchema,
  networkChoiceSchema,
  type SandboxId,
  sandboxNetworkSchema,
  sandboxSchema,
  sandboxStates,
  snapshotDiffSchema,
  snapshotSchema,
} from '../../sdk/index.ts';
import { machineIdSchema, versionDigestSchema } from './http-wire.ts';

const id = z.string().transform((text, context): SandboxId => {
  if (isSandboxId(text)) return text;
  context.addIssue({ code: 'custom', message: 'not the id of a sandbox' });
  return z.NEVER;
});
const reference = z.string().max(200);
const originSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('version'),
    digest: versionDigestSchema,
    template: z.string(),
    version: z.string(),
  }),
  z.strictObject({ kind: z.literal('snapshot'), snapshot: reference }),
]);
const filterSchema = z.strictObject({
  states: z.array(z.enum(sandboxStates)).optional(),
  template: z.string().optional(),
  metadata: metadataSchema.optional(),
});

const call = <A extends z.ZodType, R extends z.ZodType>(args: A, result: R) => ({ args, result });

/** Arguments and result of each call whose answer is a document. */
export const sandboxCalls = {
  create: call(
    z.strictObject({
      origin: originSchema,
      request: createSandboxRequestSchema,
      network: networkChoiceSchema.optional(),
    }),
    createdSandboxSchema,
  ),
  get: call(z.strictObject({ id }), sandboxSchema),
  list: call(filterSchema, z.array(sandboxSchema)),
  setDeadline: call(
    z.strictObject({ id, deadlineMs: z.int().min(0), onlyExtend: z.boolean() }),
    sandboxSchema,
  ),
  kill: call(z.strictObject({ id }), sandboxSchema),
  pause: call(z.strictObject({ id }), sandboxSchema),
  resume: call(z.strictObject({ id, deadlineMs: z.int().min(0).optional() }), createdSandboxSchema),
  fork: call(z.strictObject({ id, request: forkRequestSchema }), forkResultSchema),
  snapshot: call(z.strictObject({ id, request: createSnapshotRequestSchema }), snapshotSchema),
  rewind: call(z.strictObject({ id, snapshot: reference }), sandboxSchema),
  snapshots: call(z.strictObject({ sandbox: id.optional() }), z.array(snapshotSchema)),
  removeSnapshot: call(z.strictObject({ snapshot: reference }), z.null()),
  pinSnapshot: call(z.strictObject({ snapshot: reference, isPinned: z.boolean() }), snapshotSchema),
  diff: call(z.strictObject({ from: reference, to: reference }), snapshotDiffSchema),
  network: call(z.strictObject({ id }), sandboxNetworkSchema),
  setNetwork: call(z.strictObject({ id, choice: networkChoiceSchema.nullable() }), sandboxSchema),
  isToken: call(z.strictObject({ id, token: z.string() }), z.boolean()),
} as const;

export type SandboxMethod = keyof typeof sandboxCalls;
export type SandboxArgs<M extends SandboxMethod> = z.output<(typeof sandboxCalls)[M]['args']>;
export type SandboxAnswer<M extends SandboxMethod> = z.output<(typeof sandboxCalls)[M]['result']>;

/** Doing these twice is doing them once, so they may be asked again when nobody heard the answer. */
export const repeatableCalls = new Set<SandboxMethod>([
  'get',
  'list',
  'snapshots',
  'diff',
  'network',
  'isToken',
  'kill',
  'pinSnapshot',
]);

const methods = Object.keys(sandboxCalls) as [SandboxMethod, ...SandboxMethod[]];

/** The document of a call. */
export const sandboxCallSchema = z.strictObject({ method: z.enum(methods), args: z.unknown() });

export const eventQuerySchema = z.strictObject({
  since: z.int().min(0),
  follow: z.boolean(),
  sandbox: id.optional(),
});

/** First frame of a use; the request's end lets go of it. */
export const useHeadSchema = z.strictObject({ id });
/** The one line of a use; the answer's end, with an error or without, is that of the use. */
export const useLineSchema = z.strictObject({
  machine: machineIdSchema,
  sandbox: sandboxSchema,
  env: environmentSchema,
});
