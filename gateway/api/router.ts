/** What the route files share: one kind of router, one way to describe answers. */
import { OpenAPIHono, z } from '@hono/zod-openapi';
import type { Logger } from 'pino';
import type { SandboxEdge } from '../../edge/client/index.ts';
import { type Clock, problemSchema } from '../../sdk/index.ts';
import type { TemplateRegistry } from '../../templates/index.ts';
import { invalidInput } from '../errors.ts';
import type { KeyStore } from '../keys/store.ts';
import type { GatewayMetrics } from '../metrics.ts';
import type { Placement } from '../placement.ts';
import type { IdempotencyStore } from '../sandboxes/idempotency.ts';
import type { Serving } from '../serving.ts';

/** Collaborators of the API; all of them belong to the gateway. */
export interface ApiDeps {
  readonly registry: TemplateRegistry;
  readonly keys: KeyStore;
  readonly placement: Placement;
  readonly serving: Serving;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: GatewayMetrics;
  /** Absent where the node keeps no sandboxes. */
  readonly sandboxes?: SandboxEdge | undefined;
  readonly idempotency?: IdempotencyStore | undefined;
  /** What `/readyz` says. */
  readonly isReady: () => boolean;
}

/** What middleware leaves for handlers. */
export interface ApiEnv {
  Variables: { requestId: string };
}

/** A router whose failed validations are the same problem documents as all other errors. */
export const newRouter = (): OpenAPIHono<ApiEnv> =>
  new OpenAPIHono<ApiEnv>({
    defaultHook: (result) => {
      if (!result.success) throw invalidInput(result.error);
    },
  });

/** Names are looked up, not judged: one that can't exist is simply not found. */
export const pathName = z.string().min(1).max(200);

/** The success answer of a route, and the problem document of every other one. */
export const answers = <T extends z.ZodType, S extends 200 | 201>(
  status: S,
  schema: T,
  description: string,
) =>
  ({
    [status]: { description, content: { 'application/json': { schema } } },
    default: problem,
  }) as { [K in S]: { description: string; content: { 'application/json': { schema: T } } } } & {
    default: typeof problem;
  };

/** The answer of a removal. */
export const removed = { 204: { description: 'it is gone' } } as const;

const problem = {
  description: 'what went wrong',
  content: { 'application/problem+json': { schema: problemSchema } },
};
