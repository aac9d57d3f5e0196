/** `/snapshots`, and how a sandbox makes one. */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { z } from 'zod';
import { GatewayError, type SandboxId, type SnapshotInfo } from '../../../sdk/index.ts';
import { type ApiEnv, newRouter } from '../../api/router.ts';
import { defaultTag, parseTemplateName } from '../template-name.ts';
import { readBody, readQuery, sandboxIdOf } from './body.ts';
import type { ControlDeps } from './deps.ts';
import { limitSchema, tokenSchema } from './listing.ts';
import { snapshotSchema } from './schemas.ts';

const querySchema = z.strictObject({
  sandboxID: z.string().max(200).optional(),
  name: z.string().max(200).optional(),
  limit: limitSchema,
  nextToken: tokenSchema,
});

const nameOf = ({ name }: SnapshotInfo): string | null => (name === null ? null : `${name}:${defaultTag}`);
/** What `Sandbox.create` takes. */
const shown = (snapshot: SnapshotInfo) => {
  const name = nameOf(snapshot);
  return { snapshotID: name ?? snapshot.id, names: name === null ? [] : [name] };
};

export function snapshotRoutes({ sandboxes: edge }: ControlDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  router.post('/sandboxes/:id/snapshots', async (context) => {
    const { name } = await readBody(context, snapshotSchema);
    const wanted = name === undefined ? {} : { name: snapshotName(name) };
    const id = sandboxIdOf(context);
    const { signal } = context.req.raw;
    return context.json(shown(await edge.snapshot(id, { isPinned: false, ...wanted }, { signal })), 201);
  });
  router.get('/snapshots', async (context) => {
    const { sandboxID, name, limit, nextToken } = readQuery(context, querySchema);
    const wanted = name === undefined ? undefined : parseTemplateName(name).name;
    const all = await edge.snapshots(sandboxID === undefined ? {} : { sandbox: sandboxID as SandboxId });
    const fitting = all
      .filter((snapshot) => wanted === undefined || snapshot.name === wanted || snapshot.id === wanted)
      .sort((one, other) => other.createdAt - one.createdAt || (one.id < other.id ? 1 : -1));
    const after = nextToken === undefined ? -1 : fitting.findIndex(({ id }) => id === nextToken);
    const items = fitting.slice(after + 1, after + 1 + limit);
    const last = items.at(-1);
    if (last !== undefined && last !== fitting.at(-1)) context.header('x-next-token', last.id);
    return context.json(items.map(shown));
  });
  return router;
}

/** @throws GatewayError `invalid_request`: tags of snapshots are not kept */
function snapshotName(text: string): string {
  const { name, reference } = parseTemplateName(text);
  if (reference === undefined && /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name)) return name;
  throw new GatewayError('invalid_request', 'a snapshot is named by a-z, 0-9 and dashes, without a tag', {
    field: 'name',
  });
}
