/** `/v1/keys`. Every key may do everything, these routes included. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { createdKeySchema, createKeyRequestSchema, keySchema, listOf } from '../../sdk/index.ts';
import type { KeyStore } from '../keys/store.ts';
import { type ApiEnv, answers, newRouter, pathName, removed } from './router.ts';

const list = createRoute({
  method: 'get',
  path: '/v1/keys',
  summary: 'All keys, without the keys themselves',
  responses: answers(200, listOf(keySchema), 'keys'),
});
const create = createRoute({
  method: 'post',
  path: '/v1/keys',
  summary: 'Make a key; this answer is the only one that carries it',
  request: { body: { required: true, content: { 'application/json': { schema: createKeyRequestSchema } } } },
  responses: answers(201, createdKeySchema, 'the key'),
});
const remove = createRoute({
  method: 'delete',
  path: '/v1/keys/{id}',
  summary: 'Remove a key; it stops working at once',
  request: { params: z.object({ id: pathName }) },
  responses: removed,
});

export function keyRoutes(keys: KeyStore): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  router.openapi(list, (context) => context.json({ items: keys.list() }, 200));
  router.openapi(create, (context) => {
    const { name, limits } = context.req.valid('json');
    return context.json(keys.create(name, limits), 201);
  });
  router.openapi(remove, (context) => {
    keys.remove(context.req.valid('param').id);
    return context.body(null, 204);
  });
  return router;
}
