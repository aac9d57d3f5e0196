/** `/v1/sandboxes/{id}/processes`: commands as resources, which outlive the connection that started them. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import {
  processListSchema,
  processStatusSchema,
  sandboxHeaderNames,
  signalProcessRequestSchema,
  startProcessRequestSchema,
  stdinAcceptedSchema,
  terminalSizeSchema,
} from '../../sdk/index.ts';
import { type ApiEnv, answers, newRouter, removed } from '../api/router.ts';
import { readBounded, streamResponse } from './bytes.ts';
import { withUse } from './held.ts';
import { observe } from './observe.ts';
import { openOutput } from './output.ts';
import { processInfo, processSpec } from './process-spec.ts';
import {
  countSchema,
  edgeOf,
  flagSchema,
  jsonBody,
  processParams,
  type SandboxRouteDeps,
  sandboxIdOf,
  sandboxParams,
  streamed,
} from './router.ts';

/** Input of one request; more comes in the next, at its offset. */
const stdinBytes = 1024 * 1024;
const base = '/v1/sandboxes/{id}/processes' as const;
const path = `${base}/{process}` as const;
const request = { params: processParams };
const status = answers(200, processStatusSchema, 'the process');

const start = createRoute({
  method: 'post',
  path: base,
  summary: 'Start a command; honours Idempotency-Key',
  request: { params: sandboxParams, body: jsonBody(startProcessRequestSchema) },
  responses: answers(201, processStatusSchema, 'the process'),
});
const list = createRoute({
  method: 'get',
  path: base,
  summary: 'Processes on record, in the order of their start',
  request: { params: sandboxParams },
  responses: answers(200, processListSchema, 'processes'),
});
const get = createRoute({ method: 'get', path, summary: 'One process', request, responses: status });
const wait = createRoute({
  method: 'get',
  path: `${path}/wait`,
  summary: 'The process when it has exited, or as it is after `timeoutMs`',
  request: {
    ...request,
    query: z.strictObject({ timeoutMs: countSchema(0, 600_000).default(60_000) }),
  },
  responses: status,
});
const output = createRoute({
  method: 'get',
  path: `${path}/output/{stream}`,
  summary: 'Raw output from byte `offset` on; with `follow` until the process has exited',
  request: {
    params: processParams.extend({ stream: z.enum(['stdout', 'stderr', 'pty']) }),
    query: z.strictObject({
      offset: countSchema(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER).default(0),
      follow: flagSchema,
    }),
  },
  responses: streamed('application/octet-stream', 'bytes; x-snapgate-offset says from where'),
});
const stdin = createRoute({
  method: 'put',
  path: `${path}/stdin`,
  summary: 'Input at byte `offset`; what was taken before is skipped, so repeating is harmless',
  request: {
    ...request,
    query: z.strictObject({ offset: countSchema(0, Number.MAX_SAFE_INTEGER), close: flagSchema }),
  },
  responses: answers(200, stdinAcceptedSchema, 'where to go on'),
});
const signal = createRoute({
  method: 'post',
  path: `${path}/signal`,
  summary: 'Send a signal to its process group',
  request: { ...request, body: jsonBody(signalProcessRequestSchema) },
  responses: removed,
});
const resize = createRoute({
  method: 'post',
  path: `${path}/resize`,
  summary: 'Tell its terminal a new size',
  request: { ...request, body: jsonBody(terminalSizeSchema) },
  responses: removed,
});
const remove = createRoute({
  method: 'delete',
  path,
  summary: 'Kill it with all its descendants, and forget it',
  request,
  responses: removed,
});

export function processRoutes(deps: SandboxRouteDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  const target = (id: string, raw: Request) => ({
    edge: edgeOf(deps),
    id: sandboxIdOf(id),
    signal: raw.signal,
  });
  router.openapi(start, async (context) => {
    const wanted = context.req.valid('json');
    const where = target(context.req.valid('param').id, context.req.raw);
    const started = await withUse(where, ({ channel, env }, until) =>
      channel.startProcess(processSpec(wanted, env), { signal: until }),
    );
    return context.json(processInfo(started), 201);
  });
  router.openapi(list, async (context) => {
    const where = target(context.req.valid('param').id, context.req.raw);
    const all = await withUse(where, ({ channel }, until) => channel.listProcesses({ signal: until }));
    return context.json({ items: all.map(processInfo) }, 200);
  });
  router.openapi(get, async (context) => {
    const { id, process } = context.req.valid('param');
    const where = target(id, context.req.raw);
    const found = await withUse(where, (use, until) => use.channel.processStatus(process, { signal: until }));
    return context.json(processInfo(found), 200);
  });
  router.openapi(wait, async (context) => {
    const { id, process } = context.req.valid('param');
    const where = target(id, context.req.raw);
    const limit = new AbortController();
    const cancel = deps.clock.schedule(context.req.valid('query').timeoutMs, () => limit.abort());
    const until = AbortSignal.any([where.signal, limit.signal]);
    try {
      const ended = await observe({ ...where, signal: until }, (channel) =>
        channel.waitProcess(process, { signal: until }),
      );
      return context.json(processInfo(ended), 200);
    } catch (error) {
      if (!limit.signal.aborted || where.signal.aborted) throw error;
      const now = await withUse(where, (use) => use.channel.processStatus(process, { signal: where.signal }));
      return context.json(processInfo(now), 200);
    } finally {
      cancel();
    }
  });
  router.openapi(output, async (context) => {
    const { id, process, stream } = context.req.valid('param');
    const where = target(id, context.req.raw);
    const found = await openOutput({
      ...where,
      ...context.req.valid('query'),
      process,
      stream,
      clock: deps.clock,
    });
    return streamResponse(found.body, 200, {
      'content-type': 'application/octet-stream',
      [sandboxHeaderNames.offset]: String(found.offset),
      [sandboxHeaderNames.truncated]: String(found.isTruncated),
    }) as never;
  });
  router.openapi(stdin, async (context) => {
    const { id, process } = context.req.valid('param');
    const { offset, close } = context.req.valid('query');
    const where = target(id, context.req.raw);
    const bytes = await readBounded(context.req.raw, stdinBytes);
    const taken = await withUse(where, ({ channel }, until) =>
      channel.writeStdin(process, bytes, { offset, isLast: close, signal: until }),
    );
    return context.json({ offset: taken.offset }, 200);
  });
  router.openapi(signal, async (context) => {
    const { id, process } = context.req.valid('param');
    const wanted = context.req.valid('json');
    await withUse(target(id, context.req.raw), (use, until) =>
      use.channel.signalProcess(process, wanted.signal, { signal: until }),
    );
    return context.body(null, 204);
  });
  router.openapi(resize, async (context) => {
    const { id, process } = context.req.valid('param');
    const size = context.req.valid('json');
    await withUse(target(id, context.req.raw), (use, until) =>
      use.channel.resizeTerminal(process, size, { signal: until }),
    );
    return context.body(null, 204);
  });
  router.openapi(remove, async (context) => {
    const { id, process } = context.req.valid('param');
    await withUse(target(id, context.req.raw), (use, until) =>
      use.channel.deleteProcess(process, { signal: until }),
    );
    return context.body(null, 204);
  });
  return router;
}
