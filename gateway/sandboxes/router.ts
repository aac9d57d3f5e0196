/** What the sandbox routes share: collaborators, parameters, and the one way to the edge. */
import { z } from '@hono/zod-openapi';
import type { SandboxEdge } from '../../edge/client/index.ts';
import { type Clock, GatewayError, isSandboxId, type SandboxId } from '../../sdk/index.ts';
import type { TemplateRegistry } from '../../templates/index.ts';
import type { Serving } from '../serving.ts';
import type { IdempotencyStore } from './idempotency.ts';

/** Collaborators of the sandbox routes; all of them belong to the gateway. */
export interface SandboxRouteDeps {
  /** Absent on a gateway whose node keeps no sandboxes: every route then answers `not_supported_yet`. */
  readonly sandboxes?: SandboxEdge | undefined;
  /** Absent: keys are refused, because a key that is ignored would do the work twice. */
  readonly idempotency?: IdempotencyStore | undefined;
  readonly registry: TemplateRegistry;
  readonly serving: Serving;
  readonly clock: Clock;
}

/** The edge's sandboxes. @throws GatewayError `not_supported_yet` when there are none */
export function edgeOf({ sandboxes }: Pick<SandboxRouteDeps, 'sandboxes'>): SandboxEdge {
  if (sandboxes !== undefined) return sandboxes;
  throw new GatewayError('not_supported_yet', 'this gateway serves functions only, no sandboxes');
}

/** Ids are looked up, not judged: one that can't exist is simply not found. */
export function sandboxIdOf(text: string): SandboxId {
  if (isSandboxId(text)) return text;
  throw new GatewayError('sandbox_not_found', 'there is no sandbox with this id', { field: 'id' });
}

const parameter = z.string().min(1).max(200);
export const sandboxParams = z.object({ id: parameter });
export const processParams = z.object({ id: parameter, process: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/) });
export const snapshotParams = z.object({ snapshot: parameter });

/** A flag in a query. */
export const flagSchema = z
  .enum(['true', 'false', '1', '0'])
  .optional()
  .transform((text) => text === 'true' || text === '1');

/** A whole number in a query. */
export const countSchema = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

/** A required JSON body. */
export const jsonBody = <T extends z.ZodType>(schema: T) => ({
  required: true as const,
  content: { 'application/json': { schema } },
});

/** The success answer of a route that streams. */
export const streamed = (type: string, description: string) => ({
  200: { description, content: { [type]: { schema: z.any() } } },
});
