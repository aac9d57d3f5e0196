/** `/v1/sandboxes/{id}/network`: the rules of one sandbox, and what they refused. Keys only, never a sandbox's own token. */
import { createRoute, type OpenAPIHono } from '@hono/zod-openapi';
import { sandboxNetworkSchema, sandboxSchema, setSandboxNetworkSchema } from '../../sdk/index.ts';
import { type ApiEnv, answers, newRouter } from '../api/router.ts';
import { edgeOf, jsonBody, type SandboxRouteDeps, sandboxIdOf, sandboxParams } from './router.ts';

const path = '/v1/sandboxes/{id}/network' as const;
const request = { params: sandboxParams };
const get = createRoute({
  method: 'get',
  path,
  summary: 'Rules in force, and what they refused lately',
  request,
  responses: answers(200, sandboxNetworkSchema, 'rules and refusals'),
});
const change = {
  path,
  summary: 'Replace all rules while it runs; connections that are no longer allowed are cut',
  request: { ...request, body: jsonBody(setSandboxNetworkSchema) },
  responses: answers(200, sandboxSchema, 'the sandbox'),
};
const patch = createRoute({ method: 'patch', ...change });
/** The same: what is sent replaces all there was, so repeating it is harmless. */
const put = createRoute({ method: 'put', ...change });

export function networkRoutes(deps: SandboxRouteDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  router.openapi(get, async (context) =>
    context.json(await edgeOf(deps).network(sandboxIdOf(context.req.valid('param').id)), 200),
  );
  for (const route of [patch, put]) {
    router.openapi(route, async (context) => {
      const { rules } = context.req.valid('json');
      const choice = rules === null ? null : { kind: 'native' as const, rules };
      const id = sandboxIdOf(context.req.valid('param').id);
      return context.json(await edgeOf(deps).setNetwork(id, choice), 200);
    });
  }
  return router;
}
