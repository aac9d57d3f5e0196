import type { MiddlewareHandler } from 'hono';
import { cors } from 'hono/cors';
import { headerNames, sandboxHeaderNames } from '../../sdk/index.ts';
import type { ApiEnv } from './router.ts';

const dayS = 86_400;

/**
 * Lets pages of any origin use the API. A key is needed all the same, and a browser sends none by itself: there are no cookies
 * here, so a foreign page can do nothing that whoever gave it a key did not want.
 */
export const crossOrigin = (): MiddlewareHandler<ApiEnv> =>
  cors({
    origin: '*',
    allowMethods: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
    allowHeaders: [
      'authorization',
      'x-api-key',
      'content-type',
      'range',
      headerNames.requestId,
      headerNames.idempotencyKey,
    ],
    exposeHeaders: [
      'content-range',
      'retry-after',
      headerNames.requestId,
      headerNames.error,
      headerNames.replayed,
      sandboxHeaderNames.offset,
      sandboxHeaderNames.truncated,
    ],
    maxAge: dayS,
  });
