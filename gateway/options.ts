/** Settings of a gateway. Read by the composition roots; everything a gateway may hold or wait for has its bound here. */
import { z } from 'zod';

const whole = (minimum: number, maximum = Number.MAX_SAFE_INTEGER) =>
  z.number().int().min(minimum).max(maximum);

const limitsSchema = z.strictObject({
  headerBytes: whole(1024, 1024 * 1024)
    .default(32 * 1024)
    .describe('request line and headers together; more is answered 431'),
  headers: whole(10, 100_000).default(1000).describe('header lines of a request; more are answered 431'),
  archiveBytes: whole(1024)
    .default(512 * 1024 * 1024)
    .describe('packed template folder of one publish'),
  connections: whole(1).default(10_000).describe('open client connections; more are closed at once'),
  inFlight: whole(1).default(4096).describe('unfinished invocations; more are answered 503'),
  lingerBytes: whole(0)
    .default(64 * 1024 * 1024)
    .describe(
      'rest of a request body that is read and thrown away so that the client can read an early answer',
    ),
  pinned: whole(0, 1000).default(16).describe('versions kept warm only because somebody named them'),
  publishes: whole(1, 100).default(4).describe('publishes at the same time; more are answered 429'),
});

const timeoutsSchema = z.strictObject({
  headersMs: whole(100)
    .default(15_000)
    .describe('from the first byte of a request to the end of its headers'),
  keepAliveMs: whole(0).default(75_000).describe('idle client connection; above the 60 s of usual clients'),
  lameDuckMs: whole(0)
    .default(1000)
    .describe('how long a stop keeps idle client connections, on each of which a request may be on its way'),
  uploadIdleMs: whole(100).default(60_000).describe('gap between two pieces of a request body'),
  lingerMs: whole(0).default(5000).describe('see limits.lingerBytes'),
  edgeGraceMs: whole(0)
    .default(300_000)
    .describe("what an edge may need beyond the function's own budget before the gateway gives up on it"),
  pinnedMs: whole(0)
    .default(600_000)
    .describe('how long an unaliased version stays warm after its last call'),
  retireMs: whole(0).default(5000).describe('from a move of an alias until the old version drains'),
});

/** Strict: unknown keys are errors. */
export const gatewayOptionsSchema = z.strictObject({
  domain: z
    .string()
    .regex(/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/)
    .default('localhost')
    .describe('functions also answer at {template}.fn.{domain}'),
  trustedProxies: z
    .array(z.union([z.cidrv4(), z.cidrv6(), z.ipv4(), z.ipv6()]))
    .max(256)
    .default([])
    .describe('peers whose X-Forwarded-* and Forwarded headers are believed'),
  limits: limitsSchema.prefault({}),
  timeouts: timeoutsSchema.prefault({}),
});

/** With every default filled in. */
export type GatewayOptions = z.output<typeof gatewayOptionsSchema>;
/** What a caller writes. */
export type GatewayOptionsInput = z.input<typeof gatewayOptionsSchema>;
