import { createHash } from 'node:crypto';
import { z } from 'zod';

/**
 * The probe: a function whose answer lets the harness see whether a clone is sound. `loadtest/probe-template` is one;
 * any function that answers `GET …?probe=<id>` with this JSON will do.
 */
const probeAnswerSchema = z.object({
  /** The id it was asked with. */
  id: z.string().max(200),
  /** Hex of at least 16 bytes, fresh from the kernel. */
  random: z.string().regex(/^[0-9a-f]{32,256}$/),
  /** Hex of at least 16 bytes from the runtime's own generator, which forks share unless a hook reseeds it. */
  runtimeRandom: z
    .string()
    .regex(/^[0-9a-f]{32,256}$/)
    .optional(),
  /** Epoch milliseconds by the guest's wall clock, read while answering. */
  clockMs: z.number(),
  /** How many probes this process has answered, this one included: in memory, so a clone continues its source's. */
  count: z.number().int().min(1),
  /** Count and id of probes that this process answered before, the latest of them at least. */
  recent: z
    .array(z.tuple([z.number().int().min(1), z.string().max(200)]))
    .max(100)
    .default([]),
  /** The canary of the tenant that asked, echoed, and whatever older canary the process still holds. */
  canaries: z.array(z.string().max(200)).max(100).default([]),
});
export type ProbeAnswer = z.output<typeof probeAnswerSchema>;

/** The answer in a body, or why it is none. */
export function readProbe(body: string): ProbeAnswer | string {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return 'the body is not JSON';
  }
  const parsed = probeAnswerSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  return `${issue?.path.join('.') || 'body'}: ${issue?.message ?? 'not a probe answer'}`;
}

/** The id of one request, or without a number what all of a run begin with. `run` keeps two runs against one server apart. */
export const probeId = (run: string, sequence: number | ''): string => `${run}-${sequence}`;
/**
 * What marks a tenant's bytes: the same in every run with its key, because machines remember earlier runs, and telling
 * nothing of the key. Unlikely to occur by chance, easy to find in any body.
 */
export const canaryOf = (apiKey: string): string =>
  `sgcanary-${createHash('sha256').update(apiKey).digest('hex').slice(0, 12)}-end`;
export const canaryPattern = /sgcanary-[0-9a-f]{12}-end/g;
