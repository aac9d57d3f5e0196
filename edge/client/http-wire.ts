/** The edge protocol's documents, field by field; both ends check what they get. */
import { z } from 'zod';
import {
  digestSchema,
  type ErrorDetails,
  fromProblem,
  GatewayError,
  isMachineId,
  isVersionDigest,
  logLineSchema,
  type MachineId,
  problemSchema,
  startTypes,
  type TemplateName,
  templateNameSchema,
  toProblem,
  type VersionDigest,
  versionFactsSchema,
} from '../../sdk/index.ts';

/** Paths under which an edge answers. */
export const edgePaths = {
  node: '/edge/v1/node',
  machines: '/edge/v1/machines',
  pools: '/edge/v1/pools',
  metrics: '/edge/v1/metrics',
  serving: '/edge/v1/serving',
  versions: '/edge/v1/versions',
  build: '/edge/v1/build',
  logs: '/edge/v1/logs',
  invoke: '/edge/v1/invoke',
  upgrade: '/edge/v1/upgrade',
  sandboxCall: '/edge/v1/sandbox-call',
  sandboxEvents: '/edge/v1/sandbox-events',
  sandboxUse: '/edge/v1/sandbox-use',
  channel: '/edge/v1/channel',
  channelTunnel: '/edge/v1/channel-tunnel',
} as const;

/** `Upgrade` token of a connection that carries a tunnel. */
export const tunnelProtocol = 'snapgate-tunnel';

const rawHeadersSchema = z.array(z.string()).max(200_000);
/** A digest of ours. */
export const versionDigestSchema = digestSchema.transform((text, context): VersionDigest => {
  if (isVersionDigest(text)) return text;
  context.addIssue({ code: 'custom', message: 'not a digest' });
  return z.NEVER;
});
/** A machine id of ours. */
export const machineIdSchema = z.string().transform((text, context): MachineId => {
  if (isMachineId(text)) return text;
  context.addIssue({ code: 'custom', message: 'not the id of a machine' });
  return z.NEVER;
});
const templateName = templateNameSchema.transform((text) => text as TemplateName);

/** First frame of an invocation or an upgrade. */
export const requestHeadSchema = z.strictObject({
  requestId: z.string().min(1).max(200),
  digest: versionDigestSchema,
  method: z.string().regex(/^[A-Z!#$%&'*+.^_`|~-]{1,40}$/i),
  target: z.string().startsWith('/'),
  rawHeaders: rawHeadersSchema,
  hasBody: z.boolean(),
  timeoutMs: z.number().int().min(1),
  session: z.string().max(200).optional(),
});

const metaSchema = z.strictObject({
  machine: machineIdSchema,
  digest: versionDigestSchema,
  start: z.enum(startTypes),
  timing: z.strictObject({ queueMs: z.number(), restoreMs: z.number(), execMs: z.number() }),
});

/** Head frame of an answer. */
export const responseHeadSchema = z.strictObject({
  isUpgraded: z.boolean(),
  status: z.number().int(),
  rawHeaders: rawHeadersSchema,
  meta: metaSchema,
});

export const trailersSchema = rawHeadersSchema;

export const servingSchema = z.strictObject({
  versions: z
    .array(z.strictObject({ digest: versionDigestSchema, template: templateName, version: z.string() }))
    .max(100_000),
});
export const servingAnswerSchema = z.array(
  z.strictObject({ digest: versionDigestSchema, error: z.string().nullable() }),
);

export const logRequestSchema = z.strictObject({
  digests: z.array(versionDigestSchema).max(100_000),
  machine: machineIdSchema.optional(),
  streams: z.array(logLineSchema.shape.stream).max(4),
  tail: z.number().int().min(0),
  follow: z.boolean(),
});

const errorSchema = z.strictObject({
  problem: problemSchema,
  component: z.enum(['gateway', 'edge', 'pool', 'templates', 'guest', 'sdk']),
  retryAfterSeconds: z.number().optional(),
  extra: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).optional(),
});

/** An error as it crosses: its problem document, and the details a problem document has no name for. Never its cause. */
export function encodeError(error: GatewayError): z.input<typeof errorSchema> {
  const { component = 'edge', retryAfterSeconds, extra } = error.details;
  return {
    problem: toProblem(error),
    component,
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    ...(extra === undefined ? {} : { extra: { ...extra } }),
  };
}

/** The other way round. What can't be read becomes `internal`. */
export function decodeError(value: unknown): GatewayError {
  const result = errorSchema.safeParse(value);
  if (!result.success) {
    return new GatewayError('internal', 'the edge told an error that can not be read', { component: 'edge' });
  }
  const { problem, component, retryAfterSeconds, extra } = result.data;
  const error = fromProblem(problem, component, retryAfterSeconds);
  const details: ErrorDetails = extra === undefined ? error.details : { ...error.details, extra };
  return new GatewayError(error.code, error.message, details);
}

/** A line of a build as it crosses. */
export const buildLineSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('task'),
    id: z.string(),
    title: z.string(),
    state: z.enum(['started', 'done', 'failed', 'skipped']),
    ms: z.number().optional(),
  }),
  z.strictObject({ type: z.literal('output'), id: z.string(), text: z.string() }),
  z.strictObject({
    type: z.literal('built'),
    template: templateName,
    definition: z.record(z.string(), z.unknown()),
    unchanged: z.boolean(),
    facts: versionFactsSchema,
  }),
]);

/** Streams of documents end with this line, so that a broken connection does not pass for an end. */
export const lastLineSchema = z.union([
  z.strictObject({ end: z.literal(true) }),
  z.strictObject({ error: z.unknown() }),
]);

/** The other end is something else, or of another release. */
export const protocolError = (cause?: unknown): GatewayError =>
  new GatewayError('internal', 'the peer does not speak the edge protocol', { component: 'edge', cause });

/** Whatever an edge threw, or the reading of a request. */
export function toEdgeError(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  const details = { component: 'edge', cause: thrown } as const;
  if (thrown instanceof z.ZodError)
    return new GatewayError('invalid_request', 'the document is not what was asked for', details);
  return new GatewayError('internal', 'the edge failed in a way it did not foresee', details);
}
