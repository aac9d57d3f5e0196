/** `/v1/snapshots`, and how a sandbox makes one. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import {
  createSnapshotRequestSchema,
  pinRequestSchema,
  snapshotDiffSchema,
  snapshotListSchema,
  snapshotSchema,
} from '../../sdk/index.ts';
import { type ApiEnv, answers, newRouter, removed } from '../api/router.ts';
import {
  edgeOf,
  jsonBody,
  type SandboxRouteDeps,
  sandboxIdOf,
  sandboxParams,
  snapshotParams,
} from './router.ts';

const reference = z.string().min(1).max(200);

const create = createRoute({
  method: 'post',
  path: '/v1/sandboxes/{id}/snapshots',
  summary: 'Keep its present state while it goes on; honours Idempotency-Key',
  request: { params: sandboxParams, body: jsonBody(createSnapshotRequestSchema) },
  responses: answers(201, snapshotSchema, 'the snapshot'),
});
const list = createRoute({
  method: 'get',
  path: '/v1/snapshots',
  summary: 'Snapshots of all sandboxes, or of one; they form a tree by `parent`',
  request: { query: z.strictObject({ sandbox: reference.optional() }) },
  responses: answers(200, snapshotListSchema, 'snapshots'),
});
const diff = createRoute({
  method: 'get',
  path: '/v1/snapshots/diff',
  summary: 'Files and processes that differ between two snapshots',
  request: { query: z.strictObject({ from: reference, to: reference }) },
  responses: answers(200, snapshotDiffSchema, 'what differs'),
});
const remove = createRoute({
  method: 'delete',
  path: '/v1/snapshots/{snapshot}',
  summary: 'Remove a snapshot; what was made from it lives on',
  request: { params: snapshotParams },
  responses: removed,
});
const pin = createRoute({
  method: 'put',
  path: '/v1/snapshots/{snapshot}/pin',
  summary: 'Keep it whatever the limits of count and bytes say, or no longer',
  request: { params: snapshotParams, body: jsonBody(pinRequestSchema) },
  responses: answers(200, snapshotSchema, 'the snapshot'),
});

export function snapshotRoutes(deps: SandboxRouteDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  const edge = () => edgeOf(deps);
  router.openapi(create, async (context) => {
    const id = sandboxIdOf(context.req.valid('param').id);
    const { signal } = context.req.raw;
    return context.json(await edge().snapshot(id, context.req.valid('json'), { signal }), 201);
  });
  router.openapi(list, async (context) => {
    const { sandbox } = context.req.valid('query');
    const filter = sandbox === undefined ? {} : { sandbox: sandboxIdOf(sandbox) };
    return context.json({ items: await edge().snapshots(filter) }, 200);
  });
  router.openapi(diff, async (context) => {
    const { from, to } = context.req.valid('query');
    const found = await edge().diff(from, to, { signal: context.req.raw.signal });
    return context.json({ files: [...found.files], processes: [...found.processes] }, 200);
  });
  router.openapi(remove, async (context) => {
    await edge().removeSnapshot(context.req.valid('param').snapshot);
    return context.body(null, 204);
  });
  router.openapi(pin, async (context) => {
    const { isPinned } = context.req.valid('json');
    return context.json(await edge().pinSnapshot(context.req.valid('param').snapshot, isPinned), 200);
  });
  return router;
}
