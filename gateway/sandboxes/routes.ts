/** All sandbox routes but the ports, which are no API but a data path (see `port-door.ts`). */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { type ApiEnv, newRouter } from '../api/router.ts';
import { eventRoutes } from './events.ts';
import { fileRoutes } from './files.ts';
import { idempotent } from './idempotent.ts';
import { lifecycleRoutes } from './lifecycle.ts';
import { networkRoutes } from './network.ts';
import { processRoutes } from './processes.ts';
import type { SandboxRouteDeps } from './router.ts';
import { snapshotRoutes } from './snapshots.ts';

/** Routes that do something which a repetition would do twice. */
const keyed = [
  '/v1/sandboxes',
  '/v1/sandboxes/:id/fork',
  '/v1/sandboxes/:id/snapshots',
  '/v1/sandboxes/:id/processes',
];

/** Owns nothing; every handler's work ends with its request. */
export function sandboxRoutes(deps: SandboxRouteDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  for (const path of keyed) router.use(path, idempotent(deps.idempotency));
  router.route('/', lifecycleRoutes(deps));
  router.route('/', snapshotRoutes(deps));
  router.route('/', networkRoutes(deps));
  router.route('/', eventRoutes(deps));
  router.route('/', processRoutes(deps));
  router.route('/', fileRoutes(deps));
  return router;
}
