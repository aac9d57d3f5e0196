/** `/v1/limits`: what bounds the caller, each template and each node, how much of it is used, and what raises it. */
import { createRoute, type OpenAPIHono } from '@hono/zod-openapi';
import { type LimitInfo, limitSchema, listOf, type NodeInfo, type PoolInfo } from '../../sdk/index.ts';
import type { TemplateRegistry } from '../../templates/index.ts';
import { credentialsOf } from '../keys/credential.ts';
import type { KeyStore } from '../keys/store.ts';
import { type ApiDeps, type ApiEnv, answers, newRouter } from './router.ts';

const limits = createRoute({
  method: 'get',
  path: '/v1/limits',
  summary: 'Limits of the calling key, of served templates and of nodes, with what is used of them',
  responses: answers(200, listOf(limitSchema), 'limits'),
});

export function limitRoutes({ registry, keys, placement }: ApiDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  router.openapi(limits, async (context) => {
    const edges = placement.edges();
    const [nodes, pools] = await Promise.all([
      Promise.all(edges.map((edge) => edge.node())),
      Promise.all(edges.map((edge) => edge.pools())),
    ]);
    const credentials = credentialsOf({
      authorization: context.req.header('authorization'),
      'x-api-key': context.req.header('x-api-key'),
    });
    const items = [
      ...credentials.flatMap(({ key }) => keyLimits(keys, key)),
      ...pools
        .flat()
        .filter(({ isDraining }) => !isDraining)
        .flatMap((pool) => poolLimits(registry, pool)),
      ...nodes.map(nodeLimit),
    ];
    return context.json({ items }, 200);
  });
  return router;
}

function keyLimits(keys: KeyStore, key: string): LimitInfo[] {
  const identity = keys.verify(key);
  if (identity === null) return [];
  const { id, limits } = identity;
  const of = { scope: 'key', name: id } as const;
  return [
    { ...of, knob: 'key.limits.ratePerSecond', limit: limits.ratePerSecond, used: null },
    { ...of, knob: 'key.limits.requestsPerDay', limit: limits.requestsPerDay, used: keys.requestsToday(id) },
  ];
}

function poolLimits(registry: TemplateRegistry, pool: PoolInfo): LimitInfo[] {
  const of = { scope: 'template', name: `${pool.template}@${pool.version}` } as const;
  const machines: LimitInfo = {
    ...{ ...of, knob: 'pool.max', limit: pool.target.max },
    used: pool.blank + pool.restoring + pool.ready + pool.serving,
  };
  const { admission } = registry.resolve(pool.template, pool.version).definition;
  return [
    machines,
    { ...of, knob: 'admission.queue.depth', limit: admission.queue.depth, used: pool.waiting },
    { ...of, knob: 'admission.concurrency', limit: pool.target.max * admission.concurrency, used: null },
    { ...of, knob: 'admission.ratePerSecond', limit: admission.ratePerSecond, used: null },
  ];
}

const nodeLimit = ({ id, machines, maxMachines }: NodeInfo): LimitInfo => ({
  ...{ scope: 'node', name: id, knob: 'maxMachines', limit: maxMachines, used: machines },
});
