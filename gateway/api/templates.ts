/** `/v1/templates`, its versions and aliases. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import {
  aliasSchema,
  GatewayError,
  listOf,
  setAliasRequestSchema,
  templateDetailSchema,
  templateSchema,
  type VersionDigest,
} from '../../sdk/index.ts';
import type { GatewayOptions } from '../options.ts';
import { servedVersion } from '../serving.ts';
import { type ApiDeps, type ApiEnv, answers, newRouter, pathName, removed } from './router.ts';

const templateParams = z.object({ name: pathName });
const versionParams = z.object({ name: pathName, version: pathName });
const aliasParams = z.object({ name: pathName, alias: pathName });

const list = createRoute({
  method: 'get',
  path: '/v1/templates',
  summary: 'All templates',
  responses: answers(200, listOf(templateSchema), 'templates by name'),
});
const detail = createRoute({
  method: 'get',
  path: '/v1/templates/{name}',
  summary: 'One template with its versions and aliases',
  request: { params: templateParams },
  responses: answers(200, templateDetailSchema, 'the template'),
});
const remove = createRoute({
  method: 'delete',
  path: '/v1/templates/{name}',
  summary: 'Remove a template with all versions; what is in flight finishes',
  request: { params: templateParams },
  responses: removed,
});
const removeVersion = createRoute({
  method: 'delete',
  path: '/v1/templates/{name}/versions/{version}',
  summary: 'Remove a version that no alias names',
  request: { params: versionParams },
  responses: removed,
});
const aliases = createRoute({
  method: 'get',
  path: '/v1/aliases',
  summary: 'All aliases of all templates',
  responses: answers(200, listOf(aliasSchema), 'aliases'),
});
const setAlias = createRoute({
  method: 'put',
  path: '/v1/templates/{name}/aliases/{alias}',
  summary: 'Make or move an alias; several targets share the calls by weight',
  request: {
    params: aliasParams,
    body: { required: true, content: { 'application/json': { schema: setAliasRequestSchema } } },
  },
  responses: answers(200, aliasSchema, 'the alias'),
});
const removeAlias = createRoute({
  method: 'delete',
  path: '/v1/templates/{name}/aliases/{alias}',
  summary: 'Remove an alias other than `latest`',
  request: { params: aliasParams },
  responses: removed,
});

/** @param options when the old version of a moved alias drains */
export function templateRoutes(deps: ApiDeps, options: GatewayOptions): OpenAPIHono<ApiEnv> {
  const { registry, serving, placement } = deps;
  const { timeouts } = options;
  const router = newRouter();

  /** Drains first, so that the edges can let go of the snapshots. */
  const drop = async (digests: readonly VersionDigest[]): Promise<void> => {
    await serving.sync();
    for (const edge of placement.edges()) for (const digest of digests) await edge.removeVersion(digest);
  };

  router.openapi(list, (context) => context.json({ items: registry.templates() }, 200));
  router.openapi(detail, (context) => {
    const { name } = context.req.valid('param');
    const template = registry.template(name);
    if (template === null) throw new GatewayError('template_not_found', `there is no template "${name}"`);
    return context.json(template, 200);
  });
  router.openapi(remove, async (context) => {
    await drop(registry.removeTemplate(context.req.valid('param').name));
    return context.body(null, 204);
  });
  router.openapi(removeVersion, async (context) => {
    const { name, version } = context.req.valid('param');
    await drop([registry.removeVersion(name, version)]);
    return context.body(null, 204);
  });
  router.openapi(aliases, (context) => context.json({ items: registry.aliases() }, 200));
  router.openapi(setAlias, async (context) => {
    const { name, alias } = context.req.valid('param');
    const { targets } = context.req.valid('json');
    try {
      using _holds = await makeReady(deps, name, targets);
      return context.json(registry.setAlias(name, alias, targets), 200);
    } finally {
      // Whatever came of it: versions that nothing names any more may drain.
      serving.syncLater(timeouts.retireMs);
    }
  });
  router.openapi(removeAlias, (context) => {
    const { name, alias } = context.req.valid('param');
    registry.removeAlias(name, alias);
    serving.syncLater(timeouts.retireMs);
    return context.body(null, 204);
  });
  return router;
}

/**
 * Make before break for aliases too: a version nobody serves gets its machine before the alias sends anybody there.
 * @returns holds on the versions, for as long as no alias names them
 */
async function makeReady(
  { registry, serving }: ApiDeps,
  name: string,
  targets: readonly { version: string }[],
): Promise<Disposable> {
  using holds = new DisposableStack();
  const versions = targets.map(({ version }) => registry.resolve(name, version));
  for (const version of versions) holds.use(serving.hold(servedVersion(version)));
  const failures = await serving.sync();
  for (const { digest, version } of versions) {
    const reason = failures.get(digest as VersionDigest);
    if (reason === undefined) continue;
    throw new GatewayError('version_unavailable', `no machine of ${name}@${version} became ready: ${reason}`);
  }
  return holds.move();
}
