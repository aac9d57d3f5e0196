/** What runs where: `/v1/nodes`, `/v1/machines`, `/v1/pools` and `/v1/logs`. */
import { createRoute, type OpenAPIHono } from '@hono/zod-openapi';
import type { LogRequest } from '../../edge/client/index.ts';
import {
  GatewayError,
  isMachineId,
  type LogLine,
  listOf,
  logLineSchema,
  logQuerySchema,
  machineSchema,
  nodeSchema,
  poolSchema,
  type VersionDigest,
} from '../../sdk/index.ts';
import type { TemplateRegistry } from '../../templates/index.ts';
import { mergeIterables } from './merge-iterables.ts';
import { ndjsonResponse } from './ndjson.ts';
import { type ApiDeps, type ApiEnv, answers, newRouter } from './router.ts';

const nodes = createRoute({
  method: 'get',
  path: '/v1/nodes',
  summary: 'All nodes',
  responses: answers(200, listOf(nodeSchema), 'nodes'),
});
const machines = createRoute({
  method: 'get',
  path: '/v1/machines',
  summary: 'All machines of all nodes',
  responses: answers(200, listOf(machineSchema), 'machines'),
});
const pools = createRoute({
  method: 'get',
  path: '/v1/pools',
  summary: 'All pools of all nodes',
  responses: answers(200, listOf(poolSchema), 'pools'),
});
const logs = createRoute({
  method: 'get',
  path: '/v1/logs',
  summary: 'What machines of a template printed',
  request: { query: logQuerySchema },
  responses: {
    200: {
      description: 'one line a document',
      content: { 'application/x-ndjson': { schema: logLineSchema } },
    },
  },
});

/** Lists ask every node; one that does not answer fails the list, rather than passing half of it for the whole. */
export function fleetRoutes({ registry, placement, clock }: ApiDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  const edges = () => placement.edges();
  router.openapi(nodes, async (context) =>
    context.json({ items: await Promise.all(edges().map((edge) => edge.node())) }, 200),
  );
  router.openapi(machines, async (context) =>
    context.json({ items: (await Promise.all(edges().map((edge) => edge.machines()))).flat() }, 200),
  );
  router.openapi(pools, async (context) =>
    context.json({ items: (await Promise.all(edges().map((edge) => edge.pools()))).flat() }, 200),
  );
  router.openapi(logs, async (context) => {
    const query = context.req.valid('query');
    const stop = new AbortController();
    const streams = query.stream === undefined ? (['stdout', 'stderr'] as const) : [query.stream].flat();
    const request: LogRequest = {
      digests: digestsOf(registry, query.template, query.version),
      ...(query.machine === undefined ? {} : { machine: machineIdOf(query.machine) }),
      streams,
      tail: query.tail,
      follow: query.follow === 'true',
      signal: AbortSignal.any([context.req.raw.signal, stop.signal]),
    };
    const answer = await ndjsonResponse<LogLine>(mergeIterables(edges().map((edge) => edge.logs(request))), {
      clock,
      onCancel: () => stop.abort(),
      onError: () => null,
    });
    return answer as never;
  });
  return router;
}

function digestsOf(
  registry: TemplateRegistry,
  template: string,
  version: string | undefined,
): VersionDigest[] {
  if (version !== undefined) return [registry.resolve(template, version).digest as VersionDigest];
  const detail = registry.template(template);
  if (detail === null) throw new GatewayError('template_not_found', `there is no template "${template}"`);
  return detail.history.map(({ digest }) => digest as VersionDigest);
}

function machineIdOf(text: string) {
  if (isMachineId(text)) return text;
  throw new GatewayError('machine_not_found', `"${text}" is not the id of a machine`, { field: 'machine' });
}
