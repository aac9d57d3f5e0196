/** `/v1/events`: every transition of every sandbox, in order. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { type SandboxEvent, sandboxEventSchema } from '../../sdk/index.ts';
import { ndjsonResponse } from '../api/ndjson.ts';
import { type ApiEnv, newRouter } from '../api/router.ts';
import { countSchema, edgeOf, flagSchema, type SandboxRouteDeps, sandboxIdOf } from './router.ts';

const events = createRoute({
  method: 'get',
  path: '/v1/events',
  summary: 'What happened after event `since`; with `follow` also what happens from now on',
  request: {
    query: z.strictObject({
      since: countSchema(0, Number.MAX_SAFE_INTEGER).default(0),
      follow: flagSchema,
      sandbox: z.string().max(200).optional(),
    }),
  },
  responses: {
    200: {
      description: 'one event a line',
      content: { 'application/x-ndjson': { schema: sandboxEventSchema } },
    },
  },
});

export function eventRoutes(deps: SandboxRouteDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  router.openapi(events, async (context) => {
    const { since, follow, sandbox } = context.req.valid('query');
    const stop = new AbortController();
    const source = edgeOf(deps).events({
      since,
      follow,
      ...(sandbox === undefined ? {} : { sandbox: sandboxIdOf(sandbox) }),
      signal: AbortSignal.any([context.req.raw.signal, stop.signal]),
    });
    const answer = await ndjsonResponse<SandboxEvent>(source, {
      clock: deps.clock,
      onCancel: () => stop.abort(),
      onError: () => null,
    });
    return answer as never;
  });
  return router;
}
