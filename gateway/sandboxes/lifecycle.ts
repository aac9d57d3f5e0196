/** `/v1/sandboxes`: from creation to the end. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import type { SandboxOrigin } from '../../edge/client/index.ts';
import {
  type CreateSandboxRequest,
  createdSandboxSchema,
  createSandboxRequestSchema,
  forkRequestSchema,
  forkResultSchema,
  GatewayError,
  rewindRequestSchema,
  sandboxPageSchema,
  sandboxSchema,
  sandboxStates,
  setDeadlineRequestSchema,
  type VersionDigest,
} from '../../sdk/index.ts';
import { type ApiEnv, answers, newRouter } from '../api/router.ts';
import { pageOf } from './page.ts';
import {
  countSchema,
  edgeOf,
  jsonBody,
  type SandboxRouteDeps,
  sandboxIdOf,
  sandboxParams,
} from './router.ts';

const path = '/v1/sandboxes/{id}' as const;
const request = { params: sandboxParams };
const states = z.enum(sandboxStates);

const create = createRoute({
  method: 'post',
  path: '/v1/sandboxes',
  summary: 'Make a sandbox from a template or a snapshot; honours Idempotency-Key',
  request: { body: jsonBody(createSandboxRequestSchema) },
  responses: answers(201, createdSandboxSchema, 'the sandbox and its token'),
});
const list = createRoute({
  method: 'get',
  path: '/v1/sandboxes',
  summary: 'Sandboxes, newest first',
  request: {
    query: z.strictObject({
      state: z.union([states, z.array(states)]).optional(),
      template: z.string().max(200).optional(),
      metadata: z
        .union([z.string(), z.array(z.string()).max(64)])
        .optional()
        .describe('key=value; several must all hold'),
      limit: countSchema(1, 1000).default(100),
      nextToken: z.string().max(200).optional(),
    }),
  },
  responses: answers(200, sandboxPageSchema, 'one page'),
});
const get = createRoute({
  method: 'get',
  path,
  summary: 'One sandbox; ended ones too, for a while',
  request,
  responses: answers(200, sandboxSchema, 'the sandbox'),
});
const kill = createRoute({
  method: 'delete',
  path,
  summary: 'End it, in whatever state it is; doing so again changes nothing',
  request,
  responses: answers(200, sandboxSchema, 'how it ended'),
});
const setDeadline = createRoute({
  method: 'put',
  path: `${path}/deadline`,
  summary: 'Move the deadline; with `onlyExtend` it is a keep-alive',
  request: { ...request, body: jsonBody(setDeadlineRequestSchema) },
  responses: answers(200, sandboxSchema, 'the sandbox'),
});
const pause = createRoute({
  method: 'post',
  path: `${path}/pause`,
  summary: 'Put it on disk, memory and all; answers when that is durable',
  request,
  responses: answers(200, sandboxSchema, 'the paused sandbox'),
});
const resume = createRoute({
  method: 'post',
  path: `${path}/resume`,
  summary: 'Go on where it was paused; with a body `{deadlineMs}` also with a new deadline',
  request: {
    ...request,
    body: {
      required: false,
      content: {
        'application/json': {
          schema: z.strictObject({ deadlineMs: setDeadlineRequestSchema.shape.deadlineMs.optional() }),
        },
      },
    },
  },
  responses: answers(200, createdSandboxSchema, 'the sandbox and its token'),
});
const fork = createRoute({
  method: 'post',
  path: `${path}/fork`,
  summary: 'Make children that go on from its present memory and disk; honours Idempotency-Key',
  request: { ...request, body: jsonBody(forkRequestSchema) },
  responses: answers(201, forkResultSchema, 'each child, or why there is none'),
});
const rewind = createRoute({
  method: 'post',
  path: `${path}/rewind`,
  summary: 'Put it back to one of its snapshots, in place',
  request: { ...request, body: jsonBody(rewindRequestSchema) },
  responses: answers(200, sandboxSchema, 'the sandbox'),
});

/** Handlers only: keys are checked and idempotency is kept by middleware. */
export function lifecycleRoutes(deps: SandboxRouteDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  const edge = () => edgeOf(deps);
  router.openapi(create, async (context) => {
    const wanted = context.req.valid('json');
    const { signal } = context.req.raw;
    const sandboxes = edge();
    const origin = await originOf(deps, wanted, signal);
    return context.json(await sandboxes.create(origin, wanted, { signal }), 201);
  });
  router.openapi(list, async (context) => {
    const { state, template, metadata, limit, nextToken } = context.req.valid('query');
    const all = await edge().list({
      ...(state === undefined ? {} : { states: [state].flat() }),
      ...(template === undefined ? {} : { template }),
      ...(metadata === undefined ? {} : { metadata: metadataOf([metadata].flat()) }),
    });
    return context.json(pageOf(all, limit, nextToken), 200);
  });
  router.openapi(get, async (context) =>
    context.json(await edge().get(sandboxIdOf(context.req.valid('param').id)), 200),
  );
  router.openapi(kill, async (context) =>
    context.json(await edge().kill(sandboxIdOf(context.req.valid('param').id)), 200),
  );
  router.openapi(setDeadline, async (context) => {
    const { deadlineMs, onlyExtend } = context.req.valid('json');
    const id = sandboxIdOf(context.req.valid('param').id);
    return context.json(await edge().setDeadline(id, deadlineMs, { onlyExtend }), 200);
  });
  router.openapi(pause, async (context) => {
    const id = sandboxIdOf(context.req.valid('param').id);
    return context.json(await edge().pause(id, { signal: context.req.raw.signal }), 200);
  });
  router.openapi(resume, async (context) => {
    const id = sandboxIdOf(context.req.valid('param').id);
    const { deadlineMs } = context.req.valid('json') ?? {};
    const { signal } = context.req.raw;
    const options = deadlineMs === undefined ? { signal } : { signal, deadlineMs };
    return context.json(await edge().resume(id, options), 200);
  });
  router.openapi(fork, async (context) => {
    const id = sandboxIdOf(context.req.valid('param').id);
    const { signal } = context.req.raw;
    return context.json(await edge().fork(id, context.req.valid('json'), { signal }), 201);
  });
  router.openapi(rewind, async (context) => {
    const id = sandboxIdOf(context.req.valid('param').id);
    const { snapshot } = context.req.valid('json');
    return context.json(await edge().rewind(id, snapshot, { signal: context.req.raw.signal }), 200);
  });
  return router;
}

/** Names are resolved here; a version nobody serves yet is warmed first, as for a call. */
async function originOf(
  { registry, serving }: SandboxRouteDeps,
  { template, snapshot }: CreateSandboxRequest,
  signal: AbortSignal,
): Promise<SandboxOrigin> {
  if ((template === undefined) === (snapshot === undefined)) {
    throw new GatewayError('invalid_request', 'give either "template" or "snapshot"', { field: 'template' });
  }
  if (snapshot !== undefined) return { kind: 'snapshot', snapshot };
  const [name = '', reference] = template!.split('@', 2);
  const version = registry.resolve(name, reference);
  await serving.ensure(version, { signal });
  return {
    kind: 'version',
    digest: version.digest as VersionDigest,
    template: version.template,
    version: version.version,
  };
}

function metadataOf(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      if (at > 0) return [pair.slice(0, at), pair.slice(at + 1)];
      throw new GatewayError('invalid_request', 'metadata is filtered by key=value', { field: 'metadata' });
    }),
  );
}
