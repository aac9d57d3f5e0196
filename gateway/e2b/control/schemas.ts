/** Bodies of E2B's control API, strict: a field we don't know is refused with its name. */
import { z } from 'zod';
import { environmentSchema, metadataSchema } from '../../../sdk/index.ts';
import { portPlaceholder } from '../attributes.ts';

const dayS = 86_400;
/** Seconds; the longest life of a sandbox here. */
const timeout = z
  .number()
  .int()
  .min(0)
  .max(30 * dayS);
const shortText = z.string().min(1).max(200);
const addresses = z.array(z.string().min(1).max(280)).max(1024);

/** A host that servers inside are told instead of the real one; ASCII, `${PORT}` stands for the port. */
const requestHost = z
  .string()
  .min(1)
  .max(255)
  .regex(/^[\x21-\x7e]+$/, 'must be visible ASCII')
  .refine((host) => /^[A-Za-z0-9._:[\]-]+$/.test(host.replace(portPlaceholder, '1')), 'must be a host name');

/** Fields that a later release acts on. Absent, null or empty they change nothing; otherwise they are refused. */
const notYet = z
  .unknown()
  .refine((value) => isNothing(value), 'is not supported yet')
  .optional();

function isNothing(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

const egress = { allowOut: addresses.optional(), denyOut: addresses.optional() };
const networkSchema = z.strictObject({
  ...egress,
  allowPublicTraffic: z.boolean().default(true),
  maskRequestHost: requestHost.optional(),
  rules: notYet,
  egressProxy: notYet,
  httpsPorts: notYet,
});

const newSandbox = {
  templateID: shortText,
  alias: notYet,
  metadata: metadataSchema.nullish(),
  envVars: environmentSchema.nullish(),
  allow_internet_access: z.boolean().nullish(),
  autoPause: z.boolean().nullish(),
  autoPauseMemory: z.boolean().nullish(),
  autoResume: z.strictObject({ enabled: z.boolean() }).nullish(),
  network: networkSchema.nullish(),
  iam: notYet,
  // Clients start the servers by themselves, with a command; it tells the server nothing that it has to act on.
  mcp: z.record(z.string(), z.unknown()).nullish(),
  volumeMounts: notYet,
};

/** `POST /sandboxes`. */
export const newSandboxV1 = z.strictObject({
  ...newSandbox,
  timeout: timeout.default(15),
  secure: z.boolean().nullish(),
});
/** `POST /v2/sandboxes`. */
export const newSandboxV2 = z.strictObject({ ...newSandbox, timeout: timeout.default(300) });
export type NewSandbox = z.infer<typeof newSandboxV2> & { readonly secure?: boolean | null | undefined };

/** `POST …/connect` of v1. */
export const connectV1 = z.strictObject({ timeout, memory: z.boolean().optional() });
/** `POST …/connect` of v2; the body may be missing. */
export const connectV2 = z.strictObject({ timeout: timeout.default(300), memory: z.boolean().optional() });
export const resumeSchema = z.strictObject({
  timeout: timeout.default(15),
  memory: z.boolean().optional(),
  autoPause: z.boolean().optional(),
});
export const pauseSchema = z.strictObject({ memory: z.boolean().default(true) });
export const timeoutSchema = z.strictObject({ timeout });
export const refreshSchema = z.strictObject({ duration: z.number().int().min(0).max(3600).default(15) });
export const forkSchema = z.strictObject({
  timeout: timeout.default(15),
  count: z.number().int().min(1).max(100).default(1),
});
export const snapshotSchema = z.strictObject({ name: shortText.optional() });
export const networkUpdateSchema = z.strictObject({
  ...egress,
  allow_internet_access: z.boolean().nullish(),
  rules: notYet,
  egressProxy: notYet,
});
