/**
 * Bounds the bodies which handlers read as JSON. Hono's own `bodyLimit` builds a new `Request` out of node-server's, which
 * only works when that package may replace the process's global `Request`.
 */
import type { MiddlewareHandler } from 'hono';
import { GatewayError } from '../../sdk/index.ts';
import type { ApiEnv } from './router.ts';

/** Reads the body, if there is one, and leaves its text where `context.req.json()` looks first. */
export function limitJson(limitBytes: number): MiddlewareHandler<ApiEnv> {
  const tooLarge = () =>
    new GatewayError('body_too_large', `the body is over the limit of ${limitBytes} bytes`, {
      extra: { limitBytes },
    });
  return async (context, next) => {
    const { method, headers } = context.req.raw;
    if (Number(headers.get('content-length') ?? 0) > limitBytes) throw tooLarge();
    const { body } = method === 'GET' || method === 'HEAD' ? { body: null } : context.req.raw;
    if (body !== null) {
      const chunks: Uint8Array[] = [];
      let receivedBytes = 0;
      for await (const chunk of body) {
        receivedBytes += chunk.length;
        if (receivedBytes > limitBytes) throw tooLarge();
        chunks.push(chunk);
      }
      Object.assign(context.req.bodyCache, { text: Promise.resolve(Buffer.concat(chunks).toString('utf8')) });
    }
    await next();
  };
}
