/** What monitors ask, without a key: `/healthz`, `/readyz`, `/metrics`. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { GatewayError } from '../../sdk/index.ts';
import { toGatewayError } from '../errors.ts';
import * as fields from '../fields.ts';
import { type ApiDeps, type ApiEnv, answers, newRouter } from './router.ts';

const statusSchema = z.strictObject({ status: z.string() });

const healthz = createRoute({
  method: 'get',
  path: '/healthz',
  summary: 'Whether the process answers at all',
  security: [],
  responses: answers(200, statusSchema, 'it does'),
});
const readyz = createRoute({
  method: 'get',
  path: '/readyz',
  summary: 'Whether calls shall be sent here: a node has taken the serving set and nothing is stopping',
  security: [],
  responses: answers(200, statusSchema, 'they shall'),
});
const metrics = createRoute({
  method: 'get',
  path: '/metrics',
  summary: 'Prometheus metrics of the gateway and its nodes',
  security: [],
  responses: { 200: { description: 'metrics', content: { 'text/plain': { schema: z.string() } } } },
});

export function healthRoutes(deps: ApiDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  router.openapi(healthz, (context) => context.json({ status: 'ok' }, 200));
  router.openapi(readyz, (context) => {
    if (deps.isReady()) return context.json({ status: 'ready' }, 200);
    const reason = deps.serving.lastError?.message ?? 'the nodes have not taken the serving set yet';
    throw new GatewayError('host_not_ready', `the gateway is not ready: ${reason}`);
  });
  router.openapi(metrics, async (context) => {
    const own = deps.metrics.registry.metrics();
    const texts = await Promise.all([
      own,
      ...deps.placement.edges().map((edge) => edge.metrics().catch(unavailable)),
    ]);
    const headers = { 'content-type': deps.metrics.registry.contentType };
    return context.text(`${texts.map((text) => text.trimEnd()).join('\n')}\n`, 200, headers);
  });
  /** The gateway's own figures are worth most when a node is in trouble. */
  const unavailable = (thrown: unknown): string => {
    deps.log.warn(fields.failure(toGatewayError(thrown)), 'metrics of a node missing');
    return '# a node did not answer';
  };
  return router;
}
