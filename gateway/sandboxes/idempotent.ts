import type { MiddlewareHandler } from 'hono';
import { errorCodes, headerNames } from '../../sdk/index.ts';
import type { ApiEnv } from '../api/router.ts';
import { credentialsOf } from '../keys/credential.ts';
import { type FreshAnswer, type IdempotencyStore, requireStore } from './idempotency.ts';

/** An answer of the API as it is kept. */
interface KeptAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** Makes a JSON route honour `Idempotency-Key`. Without the header it does nothing. */
export function idempotent(store: IdempotencyStore | undefined): MiddlewareHandler<ApiEnv> {
  return async (context, next) => {
    const { method, url } = context.req;
    const key = context.req.header(headerNames.idempotencyKey);
    if (key === undefined || method !== 'POST') return next();
    const kept = requireStore(store, key);
    const [credential] = credentialsOf({
      authorization: context.req.header('authorization'),
      'x-api-key': context.req.header('x-api-key'),
    });
    const { pathname, search } = new URL(url);
    const request = {
      caller: credential?.key ?? '',
      key,
      route: `${method} ${pathname}${search}`,
      body: await context.req.text(),
    };
    const { isReplay, status, contentType, body } = await kept.run<KeptAnswer>(request, async () => {
      await next();
      return answerOf(context.res);
    });
    if (!isReplay) return;
    context.res = new Response(body, {
      status,
      headers: { 'content-type': contentType, [headerNames.replayed]: 'true' },
    });
  };
}

async function answerOf(response: Response): Promise<FreshAnswer<KeptAnswer>> {
  const code = response.headers.get(headerNames.error)?.split('/')[1] ?? '';
  const mayComeAgain =
    Object.hasOwn(errorCodes, code) && errorCodes[code as keyof typeof errorCodes].retryable;
  return {
    status: response.status,
    contentType: response.headers.get('content-type') ?? 'application/json',
    body: await response.clone().text(),
    // A refusal did nothing, so what was wrong may be put right under the same key.
    isFinal: response.ok || (response.status >= 500 && !mayComeAgain),
  };
}
