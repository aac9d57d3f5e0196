/** `/v1/templates`, its versions and aliases. */
import { Readable, Transform } from 'node:stream';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import {
  aliasSchema,
  GatewayError,
  listOf,
  type PublishEvent,
  publishEventSchema,
  setAliasRequestSchema,
  templateDetailSchema,
  templateSchema,
  toProblem,
  type VersionDigest,
} from '../../sdk/index.ts';
import type { GatewayOptions } from '../options.ts';
import { createPublisher } from '../publish.ts';
import { servedVersion } from '../serving.ts';
import { ndjsonResponse } from './ndjson.ts';
import { toApiError } from './problems.ts';
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
const publish = createRoute({
  method: 'post',
  path: '/v1/templates/{name}/versions',
  summary: 'Publish a version from a packed template folder',
  request: {
    params: templateParams,
    body: {
      description: 'gzipped tar with `template.json` at its root',
      required: true,
      content: { 'application/gzip': { schema: z.string().openapi({ format: 'binary' }) } },
    },
  },
  responses: {
    200: {
      description: 'progress, one JSON document a line; the last one is `result` or `error`',
      content: { 'application/x-ndjson': { schema: publishEventSchema } },
    },
  },
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

/** @param options limits of archives and publishes */
export function templateRoutes(deps: ApiDeps, options: GatewayOptions): OpenAPIHono<ApiEnv> {
  const { registry, serving, placement } = deps;
  const { limits, timeouts } = options;
  const publisher = createPublisher(deps, { publishes: limits.publishes, retireMs: timeouts.retireMs });
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
  router.openapi(publish, async (context) => {
    const { name } = context.req.valid('param');
    const stop = new AbortController();
    const signal = AbortSignal.any([context.req.raw.signal, stop.signal]);
    const archive = limitedArchive(context.req.raw, limits.archiveBytes);
    const answer = await ndjsonResponse<PublishEvent>(publisher.publish(name, archive, { signal }), {
      clock: deps.clock,
      onCancel: () => stop.abort(),
      onError: (thrown) => ({ type: 'error', problem: toProblem(toApiError(thrown)) }),
    });
    return answer as never;
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

/** Errors with `body_too_large`; a body that announces too much is refused before it is read. */
function limitedArchive(request: Request, limitBytes: number): Readable {
  const tooLarge = () =>
    new GatewayError('body_too_large', `the archive is over the limit of ${limitBytes} bytes`, {
      field: 'limits.archiveBytes',
      extra: { limitBytes },
    });
  if (request.body === null)
    throw new GatewayError('invalid_request', 'the request has no archive as its body');
  if (Number(request.headers.get('content-length') ?? 0) > limitBytes) throw tooLarge();
  let receivedBytes = 0;
  const limit = new Transform({
    transform(chunk: Buffer, _encoding, callback) {
      receivedBytes += chunk.length;
      if (receivedBytes > limitBytes) callback(tooLarge());
      else callback(null, chunk);
    },
  });
  const source = Readable.fromWeb(request.body as NodeReadableStream);
  source.on('error', (error) => limit.destroy(error));
  limit.on('close', () => source.destroy());
  return source.pipe(limit);
}
