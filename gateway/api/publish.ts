/** `POST /v1/templates/{name}/versions`: an archive in, progress out. */
import { Readable, Transform } from 'node:stream';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { GatewayError, type PublishEvent, publishEventSchema, toProblem } from '../../sdk/index.ts';
import type { GatewayOptions } from '../options.ts';
import { createPublisher } from '../publish.ts';
import { ndjsonResponse } from './ndjson.ts';
import { toApiError } from './problems.ts';
import { type ApiDeps, type ApiEnv, newRouter, pathName } from './router.ts';

const publish = createRoute({
  method: 'post',
  path: '/v1/templates/{name}/versions',
  summary: 'Publish a version from a packed template folder',
  request: {
    params: z.object({ name: pathName }),
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
/** @param options limits of archives and publishes */
export function publishRoutes(deps: ApiDeps, options: GatewayOptions): OpenAPIHono<ApiEnv> {
  const { limits, timeouts } = options;
  const publisher = createPublisher(deps, { publishes: limits.publishes, retireMs: timeouts.retireMs });
  const router = newRouter();
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
