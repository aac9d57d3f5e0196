/** What the operator of a node decides about its machines' networks. */
import { isIP } from 'node:net';
import { z } from 'zod';
import { parseRange } from './rules/address.ts';

/** `network.json` in the data directory holds the same fields. */
export const networkConfigSchema = z.strictObject({
  permittedRanges: z
    .array(z.string().refine((text) => parseRange(text) !== null, 'must be an address range'))
    .max(256)
    .default([])
    .describe('private ranges, and others of the floor, that address rules of templates may open'),
  resolvers: z
    .array(
      z
        .string()
        .regex(/^(\[[0-9a-fA-F:]+\]|[0-9.]+|[0-9a-fA-F:]+)(#[0-9]{1,5})?$/)
        .refine((text) => isIP(text.split('#')[0] ?? '') !== 0, 'must be an address, with #port if not 53'),
    )
    .max(8)
    .optional()
    .describe(
      'DNS servers that are asked for guests, as address or address#port; default: those of the host',
    ),
  connections: z
    .number()
    .int()
    .min(1)
    .max(65_536)
    .default(1024)
    .describe('connections of one machine at once'),
  newConnectionsPerSecond: z
    .number()
    .int()
    .min(1)
    .max(65_536)
    .default(200)
    .describe('new connections of one machine'),
  bandwidthMbitPerSecond: z
    .number()
    .min(0.1)
    .max(1_000_000)
    .nullable()
    .default(null)
    .describe('of one machine, each way; null: not limited'),
  readySlots: z
    .number()
    .int()
    .min(0)
    .max(256)
    .default(4)
    .describe('network slots kept prepared, once a template with rules is served'),
  maxSlots: z.number().int().min(1).max(4096).default(512).describe('machines with a network card at once'),
});
export type NetworkConfig = z.output<typeof networkConfigSchema>;
