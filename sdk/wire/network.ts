/** Network rules and what they refused, as the API shows them. */
import { z } from 'zod';

const epochMs = z.number().int().nonnegative();

/** Rules as a template writes them: target to allowed; `false` subtracts from all others. */
export const networkRulesSchema = z
  .record(z.string().min(1).max(280), z.boolean())
  .refine((map) => Object.keys(map).length <= 1024, 'at most 1024 rules')
  .describe('a group, host[:port], *.host[:port], address range[:port] or * to true or false');

/** Where the rules of a sandbox come from when it does not keep those of its template. */
export const networkChoiceSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('native'), rules: networkRulesSchema }),
  z.strictObject({
    kind: z.literal('e2b'),
    allowOut: z.array(z.string().min(1).max(280)).max(1024).optional(),
    denyOut: z.array(z.string().min(1).max(280)).max(1024).optional(),
    allowInternetAccess: z.boolean().optional(),
  }),
]);
export type NetworkChoice = z.infer<typeof networkChoiceSchema>;

/** One thing that was refused; repetitions within a short time are counted, not listed. */
export const networkRefusalSchema = z.strictObject({
  at: epochMs.describe('the last time, where it was refused several times'),
  count: z.number().int().min(1),
  machine: z.string(),
  sandbox: z.string().nullable(),
  ruleSet: z.string().describe('whose rules were in force: `template NAME` or `sandbox ID`'),
  kind: z.enum(['name', 'connection']).describe('a name that was asked for, or a connection'),
  name: z.string().nullable(),
  address: z.string().nullable(),
  protocol: z.enum(['tcp', 'udp']).nullable(),
  port: z.number().int().nullable(),
  rule: z.string().nullable().describe('the deciding rule as written; null: none did'),
  reason: z.string(),
});
export type NetworkRefusal = z.infer<typeof networkRefusalSchema>;

/** `GET /v1/sandboxes/{id}/network`. */
export const sandboxNetworkSchema = z.strictObject({
  hasCard: z.boolean().describe('false: its template has no `network`, so it has no network card at all'),
  own: networkChoiceSchema.nullable().describe('null: the rules of its template are in force'),
  template: networkRulesSchema.describe('rules of its template'),
  refusals: z.array(networkRefusalSchema).describe('latest last; kept in memory, bounded'),
});
export type SandboxNetwork = z.infer<typeof sandboxNetworkSchema>;

/** Body of `PATCH /v1/sandboxes/{id}/network`: replaces all rules. Null: those of the template again. */
export const setSandboxNetworkSchema = z.strictObject({ rules: networkRulesSchema.nullable() });
