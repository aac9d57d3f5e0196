/** `/sandboxes` and `/v2/sandboxes`: from creation to the end. */
import type { OpenAPIHono } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { z } from 'zod';
import {
  type CreatedSandbox,
  fromProblem,
  GatewayError,
  type SandboxId,
  type SandboxInfo,
} from '../../../sdk/index.ts';
import { type ApiEnv, newRouter } from '../../api/router.ts';
import { parseTemplateName } from '../template-name.ts';
import { readBody, readQuery, sandboxIdOf } from './body.ts';
import { toCreateRequest, toNetworkChoice } from './create.ts';
import type { ControlDeps } from './deps.ts';
import { listQuerySchema, pageOf, parseMetadata } from './listing.ts';
import { originOf } from './origin.ts';
import * as schemas from './schemas.ts';
import { showCreated, showDetail, showListed } from './wire.ts';

/** Handlers only: keys are checked and idempotency is kept by middleware. */
export function sandboxRoutes(deps: ControlDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  const { sandboxes: edge, tokens, clock } = deps;
  const created = (sandbox: SandboxInfo) => showCreated(sandbox, tokens);

  /** One that lives; the node also tells of those that ended. */
  const alive = async (id: SandboxId): Promise<SandboxInfo> => {
    const info = await edge.get(id);
    if (info.state !== 'ended') return info;
    throw new GatewayError('sandbox_not_found', `sandbox ${id} has ended`);
  };

  const create = (schema: typeof schemas.newSandboxV1 | typeof schemas.newSandboxV2) => {
    return async (context: Context<ApiEnv>) => {
      const wanted = (await readBody(context, schema)) as schemas.NewSandbox;
      const { signal } = context.req.raw;
      const { request, network } = toCreateRequest(wanted);
      const origin = await originOf(deps, wanted.templateID, signal);
      const options = { signal, ...(network === undefined ? {} : { network }) };
      return context.json(created(await edge.create(origin, request, options)), 201);
    };
  };

  /** Running ones only get a later end; paused ones go on. */
  const connect = (schema: typeof schemas.connectV1 | typeof schemas.connectV2) => {
    return async (context: Context<ApiEnv>) => {
      const { timeout } = await readBody(context, schema);
      const id = sandboxIdOf(context);
      const deadlineMs = Math.max(1, timeout) * 1000;
      const { state } = await alive(id);
      if (state !== 'paused') {
        return context.json(created(await edge.setDeadline(id, deadlineMs, { onlyExtend: true })), 200);
      }
      return context.json(
        created(await edge.resume(id, { signal: context.req.raw.signal, deadlineMs })),
        201,
      );
    };
  };

  router.post('/sandboxes', create(schemas.newSandboxV1));
  router.post('/v2/sandboxes', create(schemas.newSandboxV2));

  const listed = async (context: Context<ApiEnv>) => {
    const query = readQuery(context, listQuerySchema);
    const template = query.template === undefined ? undefined : parseTemplateName(query.template).name;
    const all = await edge.list({
      ...(template === undefined ? {} : { template }),
      ...(query.metadata === undefined ? {} : { metadata: parseMetadata(query.metadata) }),
    });
    return { query, all };
  };
  router.get('/v2/sandboxes', async (context) => {
    const { query, all } = await listed(context);
    const page = pageOf(all, query);
    if (page.nextToken !== null) context.header('x-next-token', page.nextToken);
    context.header('x-total-running', String(page.running));
    return context.json(page.items.map(showListed));
  });
  router.get('/sandboxes', async (context) => {
    const { query, all } = await listed(context);
    // The older listing knows no pages and tells of running ones unless it is asked for others.
    const whole = { ...query, state: query.state ?? ['running' as const], limit: Number.MAX_SAFE_INTEGER };
    return context.json(pageOf(all, whole).items.map(showListed));
  });

  router.get('/sandboxes/:id', async (context) =>
    context.json(showDetail(await alive(sandboxIdOf(context)), tokens)),
  );
  router.delete('/sandboxes/:id', async (context) => {
    const id = sandboxIdOf(context);
    await alive(id);
    await edge.kill(id);
    return context.body(null, 204);
  });
  router.post('/sandboxes/:id/timeout', async (context) => {
    const { timeout } = await readBody(context, schemas.timeoutSchema);
    await edge.setDeadline(sandboxIdOf(context), timeout * 1000, { onlyExtend: false });
    return context.body(null, 204);
  });
  router.post('/sandboxes/:id/refreshes', async (context) => {
    const { duration } = await readBody(context, schemas.refreshSchema);
    await edge.setDeadline(sandboxIdOf(context), duration * 1000, { onlyExtend: true });
    return context.body(null, 204);
  });
  router.post('/sandboxes/:id/connect', connect(schemas.connectV1));
  router.post('/v2/sandboxes/:id/connect', connect(schemas.connectV2));
  router.post('/sandboxes/:id/resume', async (context) => {
    const { timeout } = await readBody(context, schemas.resumeSchema);
    const id = sandboxIdOf(context);
    const { state } = await alive(id);
    if (state !== 'paused') throw new GatewayError('conflict', `sandbox ${id} is ${state}, not paused`);
    const options = { signal: context.req.raw.signal, deadlineMs: Math.max(1, timeout) * 1000 };
    return context.json(created(await edge.resume(id, options)), 201);
  });
  router.post('/sandboxes/:id/pause', async (context) => {
    const { memory } = await readBody(context, schemas.pauseSchema);
    const id = sandboxIdOf(context);
    if (!memory)
      throw new GatewayError('not_supported_yet', 'pausing without memory is not supported yet', {
        field: 'memory',
      });
    if ((await alive(id)).state === 'paused')
      throw new GatewayError('conflict', `sandbox ${id} is already paused`);
    await edge.pause(id, { signal: context.req.raw.signal });
    return context.body(null, 204);
  });
  router.post('/sandboxes/:id/fork', async (context) => {
    const { timeout, count } = await readBody(context, schemas.forkSchema);
    const id = sandboxIdOf(context);
    if ((await alive(id)).state === 'paused') {
      throw new GatewayError('conflict', `sandbox ${id} is paused; resume it first`);
    }
    const request = { count, deadlineMs: Math.max(1, timeout) * 1000 };
    const { children } = await edge.fork(id, request, { signal: context.req.raw.signal });
    return context.json(children.map(child), 201);
  });
  router.put('/sandboxes/:id/network', async (context) => {
    const choice = toNetworkChoice(await readBody(context, schemas.networkUpdateSchema));
    const id = sandboxIdOf(context);
    await alive(id);
    await edge.setNetwork(id, choice ?? null);
    return context.body(null, 204);
  });

  const child = (one: { sandbox: CreatedSandbox } | { error: Record<string, unknown> }) => {
    if ('sandbox' in one) return { sandbox: created(one.sandbox) };
    const error = fromProblem(one.error, 'edge');
    return { error: { code: error.status, message: error.message, error_code: error.code } };
  };

  router.get('/sandboxes/:id/metrics', async (context) => {
    const { start, end } = readQuery(context, rangeSchema);
    const { id } = await alive(sandboxIdOf(context));
    if (start !== undefined && end !== undefined && start > end) {
      throw new GatewayError('invalid_request', '"start" comes after "end"', { field: 'start' });
    }
    const from = (start ?? 0) * 1000;
    // Whoever asks for a second wants all of it.
    const to = end === undefined ? clock.now() : end * 1000 + 999;
    return context.json(deps.history.of(id, from, to));
  });
  return router;
}

const seconds = z.coerce.number().int().min(0).max(4_102_444_800).optional();
/** Unix seconds. */
const rangeSchema = z.strictObject({ start: seconds, end: seconds });
