/** `/v1/sandboxes/{id}/files`: bytes and directories inside the guest. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import {
  type FileWatchEvent,
  fileInfoSchema,
  GatewayError,
  guestPathSchema,
  guestUserSchema,
  makeDirectoryRequestSchema,
  moveFileRequestSchema,
  watchEventSchema,
} from '../../sdk/index.ts';
import { ndjsonResponse } from '../api/ndjson.ts';
import { type ApiEnv, answers, newRouter, removed } from '../api/router.ts';
import { bodyStream, byteRange, streamResponse } from './bytes.ts';
import { watchFiles } from './file-watch.ts';
import { streamInUse, withUse } from './held.ts';
import {
  countSchema,
  edgeOf,
  flagSchema,
  jsonBody,
  type SandboxRouteDeps,
  sandboxIdOf,
  sandboxParams,
  streamed,
} from './router.ts';

const base = '/v1/sandboxes/{id}/files' as const;
const place = { path: guestPathSchema, user: guestUserSchema.optional() };
const onPlace = { params: sandboxParams, query: z.strictObject(place) };

const read = createRoute({
  method: 'get',
  path: base,
  summary: 'Bytes of a file; one Range is honoured',
  request: onPlace,
  responses: streamed('application/octet-stream', 'the bytes; 206 for a part'),
});
const write = createRoute({
  method: 'put',
  path: base,
  summary: 'Write a file as a whole: readers see the old or the new one; parents are made',
  request: {
    params: sandboxParams,
    query: z.strictObject({
      ...place,
      mode: z
        .string()
        .regex(/^0?[0-7]{1,4}$/)
        .optional()
        .describe('octal'),
    }),
  },
  responses: removed,
});
const remove = createRoute({
  method: 'delete',
  path: base,
  summary: 'Remove a file, or with `recursive` a directory',
  request: { params: sandboxParams, query: z.strictObject({ ...place, recursive: flagSchema }) },
  responses: removed,
});
const stat = createRoute({
  method: 'get',
  path: `${base}/stat`,
  summary: 'One entry; of a symbolic link, the link itself',
  request: onPlace,
  responses: answers(200, fileInfoSchema, 'the entry'),
});
const list = createRoute({
  method: 'get',
  path: `${base}/list`,
  summary: 'Entries below a directory, one a line',
  request: {
    params: sandboxParams,
    query: z.strictObject({ ...place, depth: countSchema(1, 64).default(1) }),
  },
  responses: streamed('application/x-ndjson', 'one entry a line'),
});
const makeDirectory = createRoute({
  method: 'post',
  path: `${base}/mkdir`,
  summary: 'Make a directory and its parents',
  request: { params: sandboxParams, body: jsonBody(makeDirectoryRequestSchema) },
  responses: removed,
});
const move = createRoute({
  method: 'post',
  path: `${base}/move`,
  summary: 'Rename within one file system; a file at the target is replaced',
  request: { params: sandboxParams, body: jsonBody(moveFileRequestSchema) },
  responses: removed,
});
const watch = createRoute({
  method: 'get',
  path: `${base}/watch`,
  summary: 'Changes below a directory from now on, one a line',
  request: { params: sandboxParams, query: z.strictObject({ ...place, recursive: flagSchema }) },
  responses: {
    200: {
      description: 'one event a line',
      content: { 'application/x-ndjson': { schema: watchEventSchema } },
    },
  },
});

export function fileRoutes(deps: SandboxRouteDeps): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  const target = (id: string, raw: Request) => ({
    edge: edgeOf(deps),
    id: sandboxIdOf(id),
    signal: raw.signal,
  });
  router.openapi(read, async (context) => {
    const { path, user } = context.req.valid('query');
    const where = target(context.req.valid('param').id, context.req.raw);
    const wanted = context.req.header('range');
    let answer: { status: number; headers: Record<string, string> } = { status: 200, headers: {} };
    const body = await streamInUse(where, async ({ channel }, signal) => {
      const acting = { signal, ...(user === undefined ? {} : { user }) };
      if (wanted === undefined) return channel.readFile(path, acting);
      const { size, type } = await channel.statFile(path, acting);
      // The size of a link is not that of its file, so a part of it can't be named.
      const range = type === 'file' ? byteRange(wanted, size) : null;
      if (range === null) return channel.readFile(path, acting);
      if (range === 'unsatisfiable') throw unsatisfiable(size);
      const { offset, length } = range;
      answer = {
        status: 206,
        headers: { 'content-range': `bytes ${offset}-${offset + length - 1}/${size}` },
      };
      return channel.readFile(path, { ...acting, offset, length });
    });
    const headers = { 'content-type': 'application/octet-stream', 'accept-ranges': 'bytes' };
    return streamResponse(body, answer.status, { ...headers, ...answer.headers }) as never;
  });
  router.openapi(write, async (context) => {
    const { path, user, mode } = context.req.valid('query');
    const body = bodyStream(context.req.raw);
    await withUse(target(context.req.valid('param').id, context.req.raw), ({ channel }, signal) =>
      channel.writeFile(path, body, {
        signal,
        ...(user === undefined ? {} : { user }),
        ...(mode === undefined ? {} : { mode: Number.parseInt(mode, 8) }),
      }),
    ).finally(() => body.destroy());
    return context.body(null, 204);
  });
  router.openapi(remove, async (context) => {
    const { path, user, recursive } = context.req.valid('query');
    await withUse(target(context.req.valid('param').id, context.req.raw), ({ channel }, signal) =>
      channel.deleteFile(path, { signal, isRecursive: recursive, ...(user === undefined ? {} : { user }) }),
    );
    return context.body(null, 204);
  });
  router.openapi(stat, async (context) => {
    const { path, user } = context.req.valid('query');
    const found = await withUse(
      target(context.req.valid('param').id, context.req.raw),
      ({ channel }, signal) => channel.statFile(path, { signal, ...(user === undefined ? {} : { user }) }),
    );
    return context.json(found, 200);
  });
  router.openapi(list, async (context) => {
    const { path, user, depth } = context.req.valid('query');
    const where = target(context.req.valid('param').id, context.req.raw);
    const stop = new AbortController();
    const signal = AbortSignal.any([where.signal, stop.signal]);
    const rows = await withUse({ ...where, signal }, ({ channel }) =>
      channel.listFiles(path, { signal, depth, ...(user === undefined ? {} : { user }) }),
    );
    return (await ndjsonResponse<unknown>(rows, {
      clock: deps.clock,
      onCancel: () => stop.abort(),
      onError: () => null,
    })) as never;
  });
  router.openapi(makeDirectory, async (context) => {
    const { path, user, mode } = context.req.valid('json');
    await withUse(target(context.req.valid('param').id, context.req.raw), ({ channel }, signal) =>
      channel.makeDirectory(path, {
        signal,
        ...(user === undefined ? {} : { user }),
        ...(mode === undefined ? {} : { mode }),
      }),
    );
    return context.body(null, 204);
  });
  router.openapi(move, async (context) => {
    const { from, to, user } = context.req.valid('json');
    await withUse(target(context.req.valid('param').id, context.req.raw), ({ channel }, signal) =>
      channel.moveFile(from, to, { signal, ...(user === undefined ? {} : { user }) }),
    );
    return context.body(null, 204);
  });
  router.openapi(watch, async (context) => {
    const { path, user, recursive } = context.req.valid('query');
    const where = target(context.req.valid('param').id, context.req.raw);
    const stop = new AbortController();
    const events = watchFiles({
      ...where,
      signal: AbortSignal.any([where.signal, stop.signal]),
      path,
      isRecursive: recursive,
      ...(user === undefined ? {} : { user }),
    });
    return (await ndjsonResponse<FileWatchEvent>(events, {
      clock: deps.clock,
      onCancel: () => stop.abort(),
      onError: () => null,
    })) as never;
  });
  return router;
}

const unsatisfiable = (size: number) =>
  new GatewayError('invalid_request', `the file has ${size} bytes; the range lies behind its end`, {
    field: 'range',
    extra: { size },
  });
