/** Everything that is no function call: the admin API under `/v1`, health, metrics and the OpenAPI document. */
import { OpenAPIHono } from '@hono/zod-openapi';
import type { Logger } from 'pino';
import { type Clock, errorCodes, GatewayError, headerNames } from '../../sdk/index.ts';
import type { TemplateRegistry } from '../../templates/index.ts';
import { invalidInput, toGatewayError } from '../errors.ts';
import * as fields from '../fields.ts';
import { credentialsOf } from '../keys/credential.ts';
import type { KeyStore } from '../keys/store.ts';
import type { GatewayMetrics } from '../metrics.ts';
import type { GatewayOptions } from '../options.ts';
import type { Placement } from '../placement.ts';
import { requestIdOf } from '../request-id.ts';
import type { Serving } from '../serving.ts';
import { allowedMethods } from './allowed-methods.ts';
import { type ApiEnv, problemResponse } from './problems.ts';

export interface ApiDeps {
  readonly registry: TemplateRegistry;
  readonly keys: KeyStore;
  readonly placement: Placement;
  readonly serving: Serving;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: GatewayMetrics;
  /** What `/readyz` says. */
  readonly isReady: () => boolean;
}

/** Owns nothing; every handler's work ends with its request. */
export function createApi(deps: ApiDeps, _options: GatewayOptions): OpenAPIHono<ApiEnv> {
  const app = new OpenAPIHono<ApiEnv>({
    defaultHook: (result) => {
      if (!result.success) throw invalidInput(result.error);
    },
  });
  app.use(async (context, next) => {
    const requestId = requestIdOf(context.req.header('x-request-id'));
    context.set('requestId', requestId);
    await next();
    context.res.headers.set(headerNames.requestId, requestId);
  });
  app.use('/v1/*', async (context, next) => {
    const credentials = credentialsOf({
      authorization: context.req.header('authorization'),
      'x-api-key': context.req.header('x-api-key'),
    });
    if (!credentials.some(({ key }) => deps.keys.verify(key) !== null)) {
      const message = credentials.length > 0 ? 'the API key is not valid' : 'an API key is needed';
      throw new GatewayError('unauthenticated', message);
    }
    await next();
  });
  app.get('/healthz', (context) => context.json({ status: 'ok' }));
  app.notFound((context) => {
    const { path, method } = context.req;
    const allow = allowedMethods(app.routes, path);
    if (allow !== '') {
      return problemResponse(
        context,
        new GatewayError('method_not_allowed', `${path} does not take ${method}`),
        allow,
      );
    }
    return problemResponse(context, new GatewayError('route_not_found', `there is nothing at ${path}`));
  });
  app.onError((thrown, context) => {
    const error = toGatewayError(thrown);
    const line = { ...fields.invocationId(context.get('requestId')), ...fields.failure(error) };
    if (errorCodes[error.code].blame === 'system') deps.log.error(line, 'api request failed');
    return problemResponse(context, error);
  });
  return app;
}
